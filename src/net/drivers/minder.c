/* The minder of a driver; see minder.h. */
#include "net/drivers/minder.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/child.h"
#include "core/cleanup.h"
#include "core/file.h"
#include "engine/caps.h"
#include "net/drivers/openings.h"
#include "net/drivers/own.h"
#include "net/drivers/shut-in.h"

#define PATIENCE_MS     15000 /* for a program to be ready or to end: a loaded machine is slow */
#define BIT(capability) (UINT64_C(1) << (capability))
/* What the programs need to enter the session's network and to shut themselves in; all of it in the
 * session's user namespace only. */
#define TOOL_RIGHTS                                                                                \
  (BIT(CAP_SYS_ADMIN) | BIT(CAP_NET_ADMIN) | BIT(CAP_NET_BIND_SERVICE) | BIT(CAP_SETPCAP) |        \
   BIT(CAP_SYS_CHROOT))

static char *const tool_environment[] = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", NULL};

/* ---- programs ---- */

struct program {
  char *const *argv;
  enum driver_place place;
  int input, output, messages; /* become 0, 1, 2 */
  int ready;                   /* becomes 3, or -1 */
  bool shut_in;
};

/* Everything is above 3 and closed by the exec; only the copies stay. */
static bool place_descriptors(const struct program *program) {
  const int from[] = {program->input, program->output, program->messages, program->ready};
  for (int i = 0; i < 4; i++) {
    if (from[i] >= 0 && dup2(from[i], i) < 0)
      return false;
  }
  return true;
}

static bool take_place(const struct driver_run *run, const struct program *program) {
  if (program->place == DRIVER_INSIDE && setns(run->request->net_ns, CLONE_NEWNET) < 0)
    return false;
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  if (program->shut_in && driver_shut_in() < 0)
    return false;
  /* Root's own driver keeps what root has. */
  return run->request->driver->by_root || caps_pass(TOOL_RIGHTS) == 0;
}

/* Whoever has started us may ignore signals; pasta takes an ignored SIGPIPE for a failure. */
static void reset_signals(void) {
  sigset_t none;
  for (int number = 1; number < NSIG; number++)
    (void)signal(number, SIG_DFL);
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
}

static pid_t spawn(const struct driver_run *run, const struct program *program) {
  pid_t pid = fork();
  if (pid != 0)
    return pid;
  reset_signals();
  if (take_place(run, program) && place_descriptors(program))
    execve(program->argv[0], program->argv, tool_environment);
  dprintf(program->messages, "cannot start it: %s\n", strerror(errno));
  _exit(127);
}

/* ---- what they say ---- */

/* What a program says last is why it ended: the cause, and often a line that it has ended. */
static const char *last_lines(char *said) {
  size_t length = strlen(said);
  while (length > 0 && strchr("\r\n ", said[length - 1]))
    said[--length] = '\0';
  char *last = strrchr(said, '\n');
  if (!last)
    return said;
  *last = '\0';
  const char *before = strrchr(said, '\n');
  *last = ';'; /* one line */
  return before ? before + 1 : said;
}

static int fail(struct driver_run *run, const char *program, const char *why) {
  const char *name = strrchr(program, '/');
  snprintf(run->problem, sizeof run->problem, "%s: %s", name ? name + 1 : program,
           *why ? why : "it has failed");
  return -1;
}

static int64_t now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Appends what can be read, at the cost of what was said first; false at its end. */
static bool read_some(int fd, char *said, size_t size) {
  char more[DRIVER_PROBLEM / 2];
  ssize_t got = read(fd, more, sizeof more);
  if (got <= 0)
    return got < 0 && errno == EINTR;
  size_t length = strlen(said), added = (size_t)got;
  size_t lost = length + added >= size ? length + added + 1 - size : 0;
  memmove(said, said + lost, length - lost);
  memcpy(said + length - lost, more, added);
  said[length - lost + added] = '\0';
  return true;
}

static _Noreturn void end_with_monitor(void) {
  _exit(0); /* and all that we have started */
}

/* Waits until one of the two can be read, and is gone itself if the monitor is. False: no more
 * patience. */
static bool wait_for(const struct driver_run *run, struct pollfd *ends, int64_t until) {
  for (;;) {
    int64_t left = until - now_ms();
    struct pollfd all[3] = {ends[0], ends[1], {.fd = run->line}}; /* orders can wait */
    if (left <= 0 || poll(all, 3, (int)left) == 0)
      return false;
    if (all[2].revents)
      end_with_monitor();
    ends[0].revents = all[0].revents;
    ends[1].revents = all[1].revents;
    if (all[0].revents || all[1].revents)
      return true;
  }
}

static int memory_file(const char *text) {
  _cleanup_close_ int fd = memfd_create("input", MFD_CLOEXEC);
  if (fd < 0 || file_write_all(fd, text, strlen(text)) < 0 || lseek(fd, 0, SEEK_SET) < 0)
    return -1;
  return steal_fd(&fd);
}

int driver_command(struct driver_run *run, enum driver_place place, char *const argv[],
                   const char *input) {
  char said[DRIVER_PROBLEM] = "";
  int pipes[2], status = -1;
  _cleanup_close_ int text = input ? memory_file(input) : -1;
  if ((input && text < 0) || pipe2(pipes, O_CLOEXEC) < 0)
    return fail(run, argv[0], strerror(errno));
  _cleanup_close_ int reader = pipes[0];
  struct program program = {argv,     place,    input ? text : run->request->net_ns,
                            pipes[1], pipes[1], -1};
  pid_t pid = spawn(run, &program);
  close(pipes[1]);
  struct pollfd ends[2] = {{.fd = reader, .events = POLLIN}, {.fd = -1}};
  int64_t until = now_ms() + PATIENCE_MS;
  while (pid > 0 && wait_for(run, ends, until) && read_some(reader, said, sizeof said))
    ;
  if (pid > 0 && now_ms() >= until)
    kill(pid, SIGKILL);
  while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
    ;
  if (status == 0)
    return 0;
  return fail(run, argv[0], last_lines(said));
}

/* ---- the program that stays ---- */

/* True when it is ready. What a program of whom nothing but "ready" is expected says instead, and
 * the end of one, is why it is not. */
static bool await_ready(struct driver_run *run, int ready, bool silent, char *said, size_t size) {
  struct pollfd ends[2] = {{.fd = ready, .events = POLLIN},
                           {.fd = run->messages, .events = POLLIN}};
  int64_t until = now_ms() + PATIENCE_MS;
  while (wait_for(run, ends, until)) {
    char first[1];
    if (ends[0].revents && read(ready, first, sizeof first) == 1)
      return true;
    if (ends[0].revents)
      ends[0].fd = -1; /* it will not be; but why? */
    if (ends[1].revents && (!read_some(run->messages, said, size) || silent))
      return false;
    ends[0].revents = ends[1].revents = 0;
  }
  snprintf(said, size, "it did not become ready");
  return false;
}

int driver_serve(struct driver_run *run, const struct driver_service *service) {
  char said[DRIVER_PROBLEM] = "";
  int readiness[2], messages[2], script[2] = {-1, -1};
  const char *input = service->input;
  if (pipe2(readiness, O_CLOEXEC) < 0 || pipe2(messages, O_CLOEXEC) < 0 ||
      (input && pipe2(script, O_CLOEXEC) < 0))
    return fail(run, service->argv[0], strerror(errno));
  bool on_output = service->ready == 1;
  struct program program = {
      .argv = service->argv,
      .place = DRIVER_OUTSIDE,
      .input = input ? script[0] : run->request->net_ns,
      .output = on_output ? readiness[1] : messages[1],
      .messages = messages[1],
      .ready = on_output ? -1 : readiness[1],
      .shut_in = service->shut_in,
  };
  run->tool = spawn(run, &program);
  run->messages = messages[0];
  close(readiness[1]);
  close(messages[1]);
  if (input) /* the other end stays open: its end of file would be the program's end */
    (void)(close(script[0]), file_write_all(script[1], input, strlen(input)));
  if (run->tool > 0 && await_ready(run, readiness[0], input != NULL, said, sizeof said))
    return 0; /* what it still writes there is kept by the pipe */
  return fail(run, service->argv[0], last_lines(said));
}

/* ---- the minder ---- */

static void tell(const struct driver_run *run, enum minder_kind kind, pid_t pid, const char *text) {
  struct minder_message message = {.kind = kind, .pid = pid};
  snprintf(message.text, sizeof message.text, "%s", text);
  (void)send(run->line, &message, sizeof message, MSG_NOSIGNAL);
}

static bool tell_of(const struct driver_run *run, enum minder_kind kind,
                    const struct sighting *sighting) {
  struct minder_message message = {.kind = kind, .sighting = *sighting};
  return send(run->line, &message, sizeof message, MSG_NOSIGNAL | MSG_DONTWAIT) > 0;
}

static int load(struct driver_run *run, const char *text) {
  char *const argv[] = {run->nft, "-f", "-", NULL};
  return driver_command(run, DRIVER_INSIDE, argv, text);
}

static int load_first(struct driver_run *run, const char *own, bool tells) {
  struct egress egress = run->request->egress;
  egress.tells = tells;
  _cleanup_free_ char *rules = egress_rules(&egress);
  _cleanup_free_ char *text = xasprintf("%s%s", rules, own);
  return load(run, text);
}

/* A kernel that cannot tell of packets refuses the rules as a whole. Without that nothing is let
 * through that would not be otherwise. */
static int load_all(struct driver_run *run, const char *own) {
  run->sightings = sightings_open(run->request->net_ns);
  if (run->sightings >= 0 && load_first(run, own, true) == 0)
    return 0;
  if (run->sightings >= 0)
    close(run->sightings);
  run->sightings = -1;
  return load_first(run, own, false);
}

/* The rules, the first time, with the host's addresses of this moment; then those alone. */
static int load_rules(struct driver_run *run) {
  size_t count = 0;
  _cleanup_free_ struct own_network *networks = NULL;
  int result = own_networks(&networks, &count);
  if (result < 0) /* rules without them would lead to this machine */
    return fail(run, "the machine's own addresses", strerror(-result));
  _cleanup_free_ char *own = egress_own(networks, count);
  if (run->loaded && strcmp(own, run->loaded) == 0)
    return 0;
  if ((run->loaded ? load(run, own) : load_all(run, own)) < 0)
    return -1;
  free(run->loaded);
  run->loaded = steal_pointer(own);
  return 0;
}

static int build(struct driver_run *run) {
  run->changes = own_networks_watch(); /* first: what comes after it is not missed */
  if (run->changes < 0)
    return fail(run, "netlink", strerror(errno));
  if (load_rules(run) < 0)
    return -1;
  run->filter = openings_socket(run->request->net_ns);
  if (run->filter < 0)
    return fail(run, "netlink", strerror(-run->filter));
  return run->request->driver->start(run);
}

/* What root's driver leads to the host is decided on the host, with its addresses as they are; all
 * others come here when one has changed, and for that keep their rights over the session. */
static void give_up_rights(struct driver_run *run) {
  if (!run->request->driver->by_root) {
    (void)caps_keep(TOOL_RIGHTS);
    return;
  }
  close(run->changes);
  run->changes = -1;
  (void)caps_drop_all(); /* who owns the session's user namespace has rights there all the same */
}

/* False: the rules are no longer the right ones, so the network has to go. */
static bool reload(struct driver_run *run, char *said, size_t size) {
  if (!own_networks_changed(run->changes) || load_rules(run) == 0)
    return true;
  snprintf(said, size, "%s", run->problem);
  return false;
}

/* ---- at work ---- */

/* A few at a time: others have their turn. Lost is nothing but a line: who knocks does so again. */
static void look(struct driver_run *run) {
  struct sighting sighting;
  for (int i = 0; i < 64 && sightings_read(run->sightings, &sighting); i++) {
    if (!sighting.unknown)
      (void)tell_of(run, MINDER_OPENED, &sighting);
    else if (knocks_add(&run->knocks, &sighting, (uint64_t)now_ms()) &&
             !tell_of(run, MINDER_KNOCK, &sighting))
      knocks_forget(&run->knocks, &sighting.address, sighting.port);
  }
}

static void let_go_of_knocks(struct driver_run *run) {
  struct knock gone;
  while (knocks_take_gone(&run->knocks, (uint64_t)now_ms(), &gone))
    (void)tell_of(run, MINDER_LEFT, &(struct sighting){.address = gone.address, .port = gone.port});
}

static void obey(struct driver_run *run) {
  struct minder_order order;
  ssize_t got = recv(run->line, &order, sizeof order, MSG_DONTWAIT);
  if (got == sizeof order)
    knocks_obey(&run->knocks, run->filter, &order);
  else if (got >= 0 || (errno != EAGAIN && errno != EINTR))
    end_with_monitor();
}

/* Until the program or the monitor ends. What the program says is read, or it would come to wait
 * for us, and the last of it is kept. */
static _Noreturn void watch(struct driver_run *run) {
  int tool = (int)syscall(SYS_pidfd_open, run->tool, 0), asker = run->request->openings;
  char said[DRIVER_PROBLEM] = "";
  for (;;) {
    struct pollfd ends[6] = {
        {.fd = run->line, .events = POLLIN},     {.fd = tool, .events = POLLIN},
        {.fd = run->messages, .events = POLLIN}, {.fd = run->changes, .events = POLLIN},
        {.fd = asker, .events = POLLIN},         {.fd = run->sightings, .events = POLLIN}};
    if (tool >= 0 && poll(ends, ARRAY_SIZE(ends), run->knocks.count > 0 ? 1000 : -1) < 0)
      continue;
    if (ends[0].revents)
      obey(run);
    if (ends[2].revents) {
      if (!read_some(run->messages, said, sizeof said))
        run->messages = -1;
    }
    if (ends[4].revents && !openings_serve(asker, run->filter))
      asker = -1;
    if (ends[5].revents)
      look(run);
    let_go_of_knocks(run);
    if (tool < 0 || ends[1].revents || (ends[3].revents && !reload(run, said, sizeof said)))
      break;
  }
  tell(run, MINDER_ENDED, 0, last_lines(said));
  _exit(1);
}

static _Noreturn void minder_main(struct driver_run *run) {
  prctl(PR_SET_NAME, "sandbox-net");
  if (build(run) < 0) {
    tell(run, MINDER_FAILED, 0, run->problem);
    _exit(1);
  }
  give_up_rights(run);
  tell(run, MINDER_READY, 0, "");
  watch(run);
}

/* ---- starting it ---- */

/* The minder is the monitor's child, not ours, so that only one process is left. */
static pid_t clone_minder(void) {
  struct clone_args arguments = {.flags = CLONE_NEWPID | CLONE_PARENT};
  return (pid_t)syscall(SYS_clone3, &arguments, sizeof arguments);
}

static void find_tools(struct driver_run *run) {
  const struct net_driver *driver = run->request->driver;
  for (int i = 0; driver->tools[i].program; i++)
    run->tools[i] = net_driver_tool(driver, i);
  run->nft = net_driver_tool(driver, DRIVER_NFT);
}

/* Nothing of the monitor's but what is needed here; and none of the first four numbers is taken by
 * a descriptor that has to be moved there. */
static void keep_only(struct driver_run *run, int user_ns) {
  const int kept[] = {run->line, user_ns, run->request->net_ns, run->request->openings};
  child_keep_only(kept, ARRAY_SIZE(kept));
}

static _Noreturn void launch(struct minder_request *request, int line) {
  struct driver_run run = {.request = request,
                           .line = line,
                           .messages = -1,
                           .filter = -1,
                           .sightings = -1,
                           .changes = -1};
  find_tools(&run);
  keep_only(&run, request->user_ns);
  /* Above the numbers that programs get. */
  run.line = fcntl(line, F_DUPFD_CLOEXEC, 10);
  request->net_ns = fcntl(request->net_ns, F_DUPFD_CLOEXEC, 10);
  if (request->openings >= 0)
    request->openings = fcntl(request->openings, F_DUPFD_CLOEXEC, 10);
  close(line);
  setsid();
  bool joined = request->driver->by_root || setns(request->user_ns, CLONE_NEWUSER) == 0;
  close(request->user_ns);
  dup3(STDIN_FILENO, 3, O_CLOEXEC); /* taken, so that no pipe of ours has a number of theirs */
  pid_t pid = joined ? clone_minder() : -1;
  if (pid == 0)
    minder_main(&run);
  if (pid < 0) {
    snprintf(run.problem, sizeof run.problem, "making a pid namespace for it: %s", strerror(errno));
    tell(&run, MINDER_FAILED, 0, run.problem);
  } else {
    tell(&run, MINDER_STARTED, pid, "");
  }
  _exit(0);
}

int minder_start(struct minder *minder, const struct minder_request *request,
                 struct sb_error *error) {
  int line;
  pid_t launcher = child_start("the network driver", &line, error);
  if (launcher == 0) {
    struct minder_request copy = *request;
    launch(&copy, line);
  }
  if (launcher < 0)
    return -1;
  (void)child_wait(launcher);
  fcntl(line, F_SETFL, O_NONBLOCK);
  *minder = (struct minder){.line = line};
  return 0;
}

bool minder_order(const struct minder *minder, const struct minder_order *order) {
  return send(minder->line, order, sizeof *order, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof *order;
}

void minder_end(struct minder *minder) {
  if (minder->line >= 0)
    close(minder->line);
  if (minder->pid > 0) {
    kill(minder->pid, SIGKILL);
    (void)child_wait(minder->pid);
  }
  *minder = MINDER_NONE;
}
