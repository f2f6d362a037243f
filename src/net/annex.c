/* A second process for when the relay has no descriptor left: a connection takes two, and the limit
 * is the process's. Connections that have been decided about and only carry bytes move there, with
 * both sockets; the annex accepts nothing, decides nothing and asks nobody. It is started before
 * the relay gives up its rights, and only where the limit is low. It ends with the relay. */
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "core/file.h"
#include "net/confine.h"
#include "net/flow.h"

#define ENOUGH      16384 /* connections of one process */
#define ROUND_LIMIT 256   /* that move before others have their turn */
#define NO_LINE     UINT32_MAX

/* Who moves; its two sockets come with it. */
struct moving {
  uint32_t line; /* its place in the ledger */
};

union moving_sockets {
  char bytes[CMSG_SPACE(2 * sizeof(int))];
  struct cmsghdr align;
};

static struct relay *the_relay; /* or the annex: watches of lines hold no pointer back */

/* ---- in the annex ---- */

static bool receive(int line, struct moving *ret_moving, int ret_sockets[2]) {
  union moving_sockets control;
  struct iovec part = {ret_moving, sizeof *ret_moving};
  struct msghdr message = {
      .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
  ssize_t got = recvmsg(line, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  struct cmsghdr *sockets = got == sizeof *ret_moving ? CMSG_FIRSTHDR(&message) : NULL;
  if (!sockets || sockets->cmsg_len != CMSG_LEN(2 * sizeof(int)))
    return false;
  memcpy(ret_sockets, CMSG_DATA(sockets), 2 * sizeof(int));
  return true;
}

static void on_moving(struct watch *watch, uint32_t events) {
  struct ledger_line *lines = the_relay->input->ledger->lines;
  struct moving moving;
  int sockets[2];
  if (events & EPOLLHUP) {
    the_relay->loop.over = true; /* the relay is gone, and so are we */
    return;
  }
  for (int i = 0; i < ROUND_LIMIT && receive(watch->fd, &moving, sockets); i++)
    flow_moved_in(the_relay, sockets[0], sockets[1],
                  moving.line < LEDGER_LINES ? &lines[moving.line] : NULL);
}

static void annex_main(const struct relay *relay, int line) {
  struct relay annex = {.input = relay->input,
                        .is_annex = true,
                        .annexed = relay->annexed,
                        .line = {.fd = line, .ready = on_moving}};
  the_relay = &annex;
  if (loop_open(&annex.loop) < 0 || loop_add_level(&annex.loop, &annex.line, EPOLLIN) < 0 ||
      relay_confine() < 0)
    return;
  while (!annex.loop.over) {
    loop_round(&annex.loop, annex.turns ? 0 : -1);
    relay_give_turns(&annex);
    relay_free_dead(&annex);
  }
}

/* ---- in the relay ---- */

static void on_annex_gone(struct watch *watch, uint32_t events) {
  (void)events;
  loop_close(&the_relay->loop, watch); /* its connections have ended with it */
}

void annex_start(struct relay *relay) {
  int ends[2];
  the_relay = relay;
  relay->annex = (struct watch){.fd = -1, .ready = on_annex_gone};
  if (relay->flow_limit >= ENOUGH)
    return;
  relay->annexed =
      mmap(NULL, sizeof *relay->annexed, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (relay->annexed == MAP_FAILED ||
      socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
    return;
  signal(SIGCHLD, SIG_IGN); /* nobody waits for it */
  pid_t pid = fork();
  if (pid == 0) {
    fd_close_others(&ends[1], 1); /* above all the sockets inside: nobody else may listen there */
    annex_main(relay, ends[1]);
    _exit(0);
  }
  close(ends[1]);
  relay->annex.fd = ends[0];
  if (pid < 0 || loop_add_level(&relay->loop, &relay->annex, 0) < 0)
    loop_close(&relay->loop, &relay->annex);
}

static bool is_at_rest(const struct end *end) {
  return !end->ended && !end->passed_end && !end->hung_up && !end->urgent && !end->pending &&
         end->piped == 0;
}

static bool can_move(const struct flow *flow) {
  return flow->state == FLOW_RELAYING && !flow->inspect && !flow->queued &&
         is_at_rest(&flow->client) && is_at_rest(&flow->server);
}

static bool send_to_annex(const struct flow *flow) {
  const struct relay *relay = flow->relay;
  const int sockets[2] = {flow->client.watch.fd, flow->server.watch.fd};
  struct moving moving = {.line = flow->line ? (uint32_t)(flow->line - relay->input->ledger->lines)
                                             : NO_LINE};
  union moving_sockets control = {0};
  struct iovec part = {&moving, sizeof moving};
  struct msghdr message = {
      .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
  control.align = (struct cmsghdr){CMSG_LEN(sizeof sockets), SOL_SOCKET, SCM_RIGHTS};
  memcpy(CMSG_DATA(&control.align), sockets, sizeof sockets);
  return sendmsg(relay->annex.fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) > 0;
}

/* The sockets live on: closing them here does not take them out of the set. */
static void let_go(struct flow *flow) {
  struct end *ends[] = {&flow->client, &flow->server};
  for (size_t i = 0; i < ARRAY_SIZE(ends); i++) {
    int fd = ends[i]->watch.fd;
    loop_forget(&flow->relay->loop, &ends[i]->watch);
    close(fd);
  }
  flow->line = NULL; /* it is the annex that ends it there */
  flow_close(flow, false);
}

bool annex_relieve(struct relay *relay) {
  int moved = 0;
  struct flow *next;
  for (struct flow *flow = relay->flows; flow && moved < ROUND_LIMIT; flow = next) {
    next = flow->next;
    if (relay->annex.fd < 0 || *relay->annexed >= relay->flow_limit)
      break;
    if (!can_move(flow))
      continue;
    (*relay->annexed)++; /* before it can have ended there */
    if (!send_to_annex(flow)) {
      (*relay->annexed)--;
      break;
    }
    let_go(flow);
    moved++;
  }
  return moved > 0;
}
