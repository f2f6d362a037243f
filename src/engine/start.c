/* Starts the session's first process from the monitor's side; see engine.h. */
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "core/escape.h"
#include "core/exit-code.h"
#include "core/file.h"
#include "core/text.h"
#include "engine/engine.h"
#include "engine/init.h"
#include "plan/distant.h"
#include "plan/share.h"

#define USUAL_END_MS     500
#define LAST_PATIENCE_MS 1500

struct start_report *engine_report_new(void) {
  void *page = mmap(NULL, sizeof(struct start_report), PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return page == MAP_FAILED ? NULL : page;
}

/* In the child's copy of the memory only. */
static void set_title(const struct engine_birth *birth) {
  prctl(PR_SET_NAME, "sandbox-init");
  if (birth->title && birth->title_size > sizeof "sandbox-init") {
    memset(birth->title, 0, birth->title_size);
    memcpy(birth->title, "sandbox-init", sizeof "sandbox-init");
  }
}

static _Noreturn void child_main(const struct engine_birth *birth, const struct engine *engine,
                                 int channel) {
  set_title(birth);
  struct init_birth init = {
      .input = engine->input,
      .report = engine->report,
      .channel = channel,
      .limits = birth->limits,
  };
  memcpy(init.descriptors, birth->descriptors, sizeof init.descriptors);
  init_main(&init);
}

/* What was being done, and what to do if it fails. */
static const struct {
  const char *doing, *fix;
  bool by_kernel; /* depends on nothing but the machine */
} steps[STEP_COUNT] = {
    [STEP_LIMITS] = {"entering the session's cgroups", "run 'sandbox doctor'"},
    [STEP_NAMESPACES] = {"creating the network, ipc, uts and cgroup namespaces",
                         "run 'sandbox doctor': the kernel or an outer container forbids them",
                         true},
    [STEP_LOOPBACK] = {"bringing up the session's loopback interface", "run 'sandbox doctor'",
                       true},
    /* not by_kernel: without a way out nobody wants to run without a sandbox */
    [STEP_NETWORK] = {"preparing the session's network for the relay",
                      "it needs nftables with transparent proxying in the kernel (nf_tables, "
                      "nft_tproxy); run 'sandbox doctor'"},
    [STEP_HOSTNAME] = {"setting the session's host name", "run 'sandbox doctor'"},
    [STEP_PRIVATE] = {"mounting the session's private tmpfs", "run 'sandbox doctor'", true},
    [STEP_PIVOT] = {"entering the session's root", "is '/' an initramfs? see docs/ARCHITECTURE.md",
                    true},
    [STEP_TIME] = {"shifting the clocks with --time-offset",
                   "the kernel needs CONFIG_TIME_NS, and no clock may become negative"},
    [STEP_TERMINAL] = {"opening the session's terminal", "try --tty never"},
    [STEP_FORK] = {"starting a process", "too many processes? see ulimit -u"},
    [STEP_KEYRING] = {"replacing the session keyring", "see /proc/sys/kernel/keys/maxkeys"},
    [STEP_WORKING_FOLDER] = {"entering the working folder",
                             "it must exist and be visible inside: choose another with -C"},
    [STEP_RLIMIT] = {"switching off core dumps", "run 'sandbox doctor'"},
    [STEP_CAPABILITIES] = {"dropping capabilities", "run 'sandbox doctor'", true},
    [STEP_LANDLOCK] = {"restricting writes with Landlock", "run 'sandbox doctor'"},
    [STEP_LISTENER] = {"listening to the session's file accesses (seccomp notify)",
                       "one listener per process tree: inside another sandbox or under WSL2 use "
                       "--gate fuse, or --static",
                       true},
    [STEP_SECCOMP] = {"installing the system call filter", "run 'sandbox doctor'", true},
};

static int explain_clone(int errnum, struct sb_error *error) {
  if (errnum != EAGAIN && errnum != ENOMEM)
    return sb_fail(error, SB_CODE_UNSUPPORTED, errnum, "creating a user namespace");
  sb_fail(error, SB_CODE_SYSTEM, errnum, "starting the session's first process");
  return sb_hint(error, "%s", steps[STEP_FORK].fix);
}

static int share_memory(struct engine *engine, struct sb_error *error) {
  engine->area = plan_area_new();
  if (!engine->area)
    return sb_fail_errno(error, "reserving memory for the plan");
  engine->input = plan_area_take(engine->area, sizeof *engine->input);
  return 0;
}

int engine_clone(const struct engine_birth *birth, struct start_report *report,
                 struct engine *ret_engine, struct sb_error *error) {
  struct engine engine = ENGINE_NONE;
  engine.report = report;
  report->failed = STEP_NONE; /* whatever became of one before it */
  if (share_memory(&engine, error) < 0)
    return -1;
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0) {
    plan_area_free(engine.area);
    return sb_fail_errno(error, "creating the line to the session");
  }
  struct clone_args arguments = {
      /* The costly namespaces (network: 0.4 ms) are entered by the child while we go on. */
      .flags = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_PIDFD,
      .pidfd = (uintptr_t)&engine.pidfd,
      .exit_signal = SIGCHLD,
  };
  int group = birth->limits ? limit_group_clone_fd(birth->limits) : -1;
  if (group >= 0) {
    arguments.flags |= CLONE_INTO_CGROUP;
    arguments.cgroup = (unsigned)group;
  }
  engine.init = (pid_t)syscall(SYS_clone3, &arguments, sizeof arguments);
  if (engine.init == 0) {
    close(ends[0]); /* or we would never see the monitor's end of file */
    child_main(birth, &engine, ends[1]);
  }
  close(ends[1]);
  if (engine.init < 0) {
    int saved = errno;
    close(ends[0]);
    plan_area_free(engine.area);
    return explain_clone(saved, error);
  }
  /* The monitor must never wait for init: the two could wait for each other. */
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  engine.channel = ends[0];
  report_phase(report, PHASE_CLONED);
  *ret_engine = engine;
  return 0;
}

/* ---- identity ---- */

static int write_proc(pid_t pid, const char *name, const char *text, size_t length) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
  _cleanup_close_ int fd = open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0)
    return -errno;
  return write(fd, text, length) < 0 ? -errno : 0;
}

/* Every id the caller's own namespace knows, each mapped to itself, so that owners look as they do
 * outside. Only a caller with CAP_SETUID may write that. */
static int write_full_map(pid_t pid, const char *name) {
  char own[32];
  snprintf(own, sizeof own, "/proc/self/%s", name);
  _cleanup_free_ char *current = NULL;
  int result = file_read_at(AT_FDCWD, own, 64 * 1024, &current, NULL);
  if (result < 0)
    return result;
  _cleanup_text_ struct text map = {0};
  char *rest = NULL;
  for (char *line = strtok_r(current, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
    unsigned inside, outside, count;
    if (sscanf(line, "%u %u %u", &inside, &outside, &count) == 3)
      text_appendf(&map, "%u %u %u\n", inside, inside, count);
  }
  return write_proc(pid, name, text_string(&map), map.length);
}

static int write_single_map(pid_t pid, const char *name, unsigned id) {
  char map[64];
  int length = snprintf(map, sizeof map, "%u %u 1\n", id, id);
  return write_proc(pid, name, map, (size_t)length);
}

static int map_ids(pid_t pid) {
  if (geteuid() == 0 && write_full_map(pid, "uid_map") == 0 && write_full_map(pid, "gid_map") == 0)
    return 0;
  /* The kernel wants setgroups given up before an unprivileged gid map: dropping a group could
   * otherwise lift a restriction that a file places on that group. */
  int result = write_proc(pid, "setgroups", "deny", 4);
  if (result == 0 || result == -ENOENT)
    result = write_single_map(pid, "uid_map", geteuid());
  return result < 0 ? result : write_single_map(pid, "gid_map", getegid());
}

#define EXITING 0x4 /* the kernel's PF_EXITING */

/* On its way out: a process gives up its memory, and with it its files in /proc become root's, some
 * time before anybody can wait for it. */
static bool is_exiting(pid_t pid) {
  char path[32];
  unsigned flags = 0;
  _cleanup_free_ char *line = NULL;
  snprintf(path, sizeof path, "/proc/%d/stat", pid);
  if (file_read_at(AT_FDCWD, path, 4096, &line, NULL) < 0)
    return false;
  const char *rest = strrchr(line, ')'); /* the name before it may hold anything */
  return rest && sscanf(rest, ") %*c %*d %*d %*d %*d %*d %u", &flags) == 1 && (flags & EXITING);
}

/* Its status stays for who waits for it. */
static bool has_died(pid_t init) {
  siginfo_t info = {0};
  return is_exiting(init) || (waitid(P_PID, (id_t)init, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
                              info.si_pid == init);
}

static int open_namespace(pid_t pid, const char *name) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/ns/%s", pid, name);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  return fd < 0 ? -errno : fd;
}

/* Now: once it is confined, not even its parent may look at it. */
static int open_namespaces(struct engine *engine) {
  engine->user_ns = open_namespace(engine->init, "user");
  engine->mount_ns = open_namespace(engine->init, "mnt");
  return engine->user_ns < 0 ? engine->user_ns : engine->mount_ns < 0 ? engine->mount_ns : 0;
}

/* It waits for MESSAGE_MAPPED before it looks. */
static int tell_base(struct engine *engine, const struct engine_input *input,
                     struct sb_error *error) {
  const struct plan *base = plan_share(input->base, engine->area, error);
  if (!base)
    return -1;
  *engine->input = (struct init_input){
      .base = base,
      .rlimits = *input->rlimits,
      .original_mask = input->original_mask,
      .idle = input->idle,
      .tell_at_once = input->tell_at_once,
  };
  for (int fd = 0; fd < 3; fd++) {
    engine->input->terminal[fd] = input->terminal[fd];
    engine->input->has_terminal |= input->terminal[fd];
  }
  engine->plan = input->base;
  return 0;
}

int engine_map_identity(struct engine *engine, const struct engine_input *input,
                        struct sb_error *error) {
  int ignored;
  if (tell_base(engine, input, error) < 0)
    return -1;
  int result = map_ids(engine->init);
  if (result == 0)
    result = open_namespaces(engine);
  bool died = result < 0 && has_died(engine->init);
  if (died && engine->report->failed != STEP_NONE)
    return engine_explain(engine, &ignored, error);
  /* No refusal of this machine: nothing else may be tried in its place. */
  if (died)
    return sb_fail(error, SB_CODE_SYSTEM, 0, "the session's first process was killed");
  if (result < 0) {
    sb_fail(error, SB_CODE_UNSUPPORTED, -result, "mapping your user id into the session");
    return sb_hint(error, "run 'sandbox doctor' to see what restricts user namespaces here");
  }
  report_phase(engine->report, PHASE_IDENTITY);
  (void)engine_send(engine, MESSAGE_MAPPED, 0); /* if init is gone, engine_go says why */
  return 0;
}

int engine_send(struct engine *engine, enum message_kind kind, int value) {
  struct message message = {.kind = kind, .value = value};
  return send(engine->channel, &message, sizeof message, MSG_NOSIGNAL) < 0 ? -errno : 0;
}

static int send_or_explain(struct engine *engine, enum message_kind kind, struct sb_error *error) {
  int ignored;
  return engine_send(engine, kind, 0) == 0 ? 0 : engine_explain(engine, &ignored, error);
}

int engine_go(struct engine *engine, const struct plan *plan, struct sb_error *error) {
  engine->plan = plan;
  engine->input->plan = plan_share(plan, engine->area, error);
  return engine->input->plan ? send_or_explain(engine, MESSAGE_GO, error) : -1;
}

int engine_ready(struct engine *engine, struct sb_error *error) {
  return send_or_explain(engine, MESSAGE_READY, error);
}

void engine_kill(const struct engine *engine) {
  if (engine->init > 0)
    kill(engine->init, SIGKILL);
}

/* Nobody is in it any more, and taking its mounts apart takes the kernel a twentieth of a short
 * session. Only an overlay is waited for: the next one may be for the same folder. */
static void leave_mount_namespace(const struct engine *engine) {
  if (engine->mount_ns >= 0 && plan_has_overlays(engine->plan))
    close(engine->mount_ns);
  else if (engine->mount_ns >= 0)
    fd_abandon(engine->mount_ns);
}

/* Where there are servers to wait for, who waits for one cannot be killed. */
static bool await_end(const struct engine *engine, struct rusage *ret_usage) {
  struct pollfd end = {.fd = engine->pidfd, .events = POLLIN};
  if (engine->pidfd >= 0 && poll(&end, 1, USUAL_END_MS) == 0 && distant_exists() &&
      poll(&end, 1, LAST_PATIENCE_MS) == 0)
    return false;
  while (wait4(engine->init, NULL, 0, ret_usage) < 0 && errno == EINTR)
    ;
  return true;
}

bool engine_destroy(struct engine *engine, struct rusage *ret_usage) {
  engine_kill(engine);
  bool gone = engine->init <= 0 || await_end(engine, ret_usage);
  if (engine->pidfd >= 0)
    close(engine->pidfd);
  if (engine->channel >= 0)
    close(engine->channel);
  if (engine->user_ns >= 0)
    close(engine->user_ns);
  leave_mount_namespace(engine);
  plan_area_free(engine->area);
  *engine = ENGINE_NONE;
  return gone;
}

/* ---- explaining ---- */

static int explain_exec(const struct engine *engine, int *ret_exit, struct sb_error *error) {
  int errnum = engine->report->errnum;
  _cleanup_free_ char *command = escape_string(engine->plan->arguments.items[0]);
  *ret_exit = exit_code_of_exec(errnum);
  if (errnum != ENOENT) {
    sb_fail(error, SB_CODE_SYSTEM, errnum, "cannot execute '%s'", command);
    return errnum == EACCES ? sb_hint(error, "is it executable, and readable inside the sandbox?")
                            : -1;
  }
  sb_fail(error, SB_CODE_NOT_FOUND, 0, "command not found: '%s'", command);
  return sb_hint(error, "check the spelling, or whether its folder is in PATH and visible inside");
}

/* Refused by the kernel or by what surrounds us, whatever the project and the policy: what
 * `require` is about. Anything else must never lead to a run without a sandbox, for a hostile
 * project could bring it about. */
static enum sb_code code_of(bool by_kernel, int errnum) {
  bool refused = errnum == EPERM || errnum == EACCES || errnum == ENOSYS || errnum == EOPNOTSUPP ||
                 errnum == ENODEV;
  return by_kernel && refused ? SB_CODE_UNSUPPORTED : SB_CODE_SYSTEM;
}

static bool is_kernel_view(enum operation_kind kind) {
  return kind == OPERATION_ROOT || kind == OPERATION_GATE || kind == OPERATION_PROC ||
         kind == OPERATION_SYSFS || kind == OPERATION_DEVPTS;
}

static int explain_operation(const struct engine *engine, struct sb_error *error) {
  const struct operation *operation = &engine->plan->operations[engine->report->operation];
  _cleanup_free_ char *path = escape_string(operation->path);
  int errnum = engine->report->errnum;
  sb_fail(error, code_of(is_kernel_view(operation->kind), errnum), errnum, "%s '%s'",
          operation_doing(operation->kind), path);
  if (operation->kind == OPERATION_PROC && errnum == EPERM && !engine->plan->weaker_nested)
    return sb_hint(error, "this container masks /proc, and the policy does not allow the weaker "
                          "nested mode (weaker_nested: false)");
  if (operation->kind == OPERATION_PROC && errnum == EPERM)
    return sb_hint(error, "this container masks /proc and the kernel has no Landlock to make up "
                          "for it: start the container with an unmasked /proc");
  if (errnum == ELOOP || errnum == ENOENT)
    return sb_hint(error, "it changed while the session started: run the command again");
  if (operation->kind == OPERATION_OVERLAY)
    return sb_hint(error, "overlays need a file system with extended attributes for their upper "
                          "folder; run 'sandbox doctor'");
  return sb_hint(error, "it is there because: %s", operation->why ? operation->why : "always");
}

int engine_explain(const struct engine *engine, int *ret_exit, struct sb_error *error) {
  enum step step = engine->report->failed;
  *ret_exit = EXIT_CODE_FAILURE;
  if (step == STEP_EXEC)
    return explain_exec(engine, ret_exit, error);
  if (step == STEP_OPERATION)
    return explain_operation(engine, error);
  if (step == STEP_NONE || !steps[step].doing)
    return sb_fail(error, SB_CODE_SYSTEM, 0, "the session ended before the command started");
  int errnum = engine->report->errnum;
  if (step == STEP_WORKING_FOLDER) {
    _cleanup_free_ char *folder = escape_string(engine->plan->working_folder);
    sb_fail(error, SB_CODE_SYSTEM, errnum, "%s '%s'", steps[step].doing, folder);
  } else if (step == STEP_LANDLOCK && engine->report->detail) {
    _cleanup_free_ char *path = escape_string(engine->report->detail);
    sb_fail(error, SB_CODE_SYSTEM, errnum, "%s: '%s'", steps[step].doing, path);
  } else {
    sb_fail(error, code_of(steps[step].by_kernel, errnum), errnum, "%s", steps[step].doing);
  }
  return sb_hint(error, "%s", steps[step].fix);
}
