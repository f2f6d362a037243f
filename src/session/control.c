/* The control socket of a session; see control.h. Everything that arrives is from the same user but
 * not from a friend: a confused program must be refused, not obeyed. */
#include "session/control.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/escape.h"
#include "core/file.h"
#include "core/json.h"
#include "core/path.h"
#include "core/text.h"
#include "session/monitor.h"
#include "session/peer.h"

#define OUTPUT_LIMIT   (4u << 20)
#define FD_QUEUE_LIMIT 4 /* requests of one client that wait with descriptors */

struct client {
  int fd;
  char *peer; /* who it is, for the log */
  struct text input, output;
  /* Received, oldest first; each request that wants descriptors takes one set. Lines and
   * descriptors keep their order, but the kernel does not say which byte a set came with. */
  int fds[FD_QUEUE_LIMIT][FD_PASS_LIMIT];
  size_t fd_sets;
  uint64_t due_ns; /* when it is its turn, by the clock of all */
  bool has_line; /* a whole one waits in the input; nothing more is received until it is handled */
  bool closing;  /* send what waits, then close */
};

struct control {
  int listener;
  const struct control_command *commands;
  void *context;
  void (*gone)(void *context, struct client *client);
  struct client *clients[CONTROL_CLIENT_LIMIT];
  size_t count;
  uint64_t clock_ns; /* how far its clients are with what they may take of our time */
};

/* ---- sending ---- */

static void close_fds(int fds[FD_PASS_LIMIT]) {
  for (size_t i = 0; i < FD_PASS_LIMIT; i++) {
    if (fds[i] >= 0)
      close(fds[i]);
    fds[i] = -1;
  }
}

static void drop_oldest_fds(struct client *client) {
  close_fds(client->fds[0]);
  client->fd_sets--;
  memmove(client->fds[0], client->fds[1], client->fd_sets * sizeof client->fds[0]);
}

static void flush(struct client *client) {
  while (client->output.length > 0) {
    ssize_t sent =
        send(client->fd, client->output.data, client->output.length, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
      client->closing |= errno != EAGAIN && errno != EINTR;
      return;
    }
    memmove(client->output.data, client->output.data + sent, client->output.length - (size_t)sent);
    client->output.length -= (size_t)sent;
  }
}

void control_send(struct client *client, json_t *message, const json_t *tag, const int *fds,
                  size_t fd_count) {
  if (tag)
    json_object_set(message, "tag", (json_t *)tag);
  _cleanup_free_ char *line = json_line(message);
  json_decref(message);
  if (fd_count > 0) {
    /* Descriptors travel with the first byte of their line; a client that asked for some reads. */
    flush(client);
    if (client->output.length > 0 || fd_send(client->fd, fds, fd_count, line, strlen(line)) < 0)
      client->closing = true;
    return;
  }
  text_append(&client->output, line);
  flush(client);
  if (client->output.length > OUTPUT_LIMIT) {
    text_clear(&client->output); /* it does not read: it does not need to know */
    client->closing = true;
  }
}

/* {"code", "message", "hint"}. */
static json_t *error_json(const struct sb_error *error) {
  json_t *object = json_object();
  json_set_string(object, "code", sb_code_name(error->code));
  json_set_string(object, "message", error->message);
  json_set_string(object, "hint", error->hint);
  return object;
}

/* As {"error": …}. */
static void send_error(struct client *client, const struct sb_error *error, const json_t *tag) {
  control_send(client, json_pack("{s:o}", "error", error_json(error)), tag, NULL, 0);
}

/* ---- receiving ---- */

static const struct control_command *find_command(const struct control *control, const char *name) {
  for (const struct control_command *command = control->commands; command->name; command++) {
    if (name && strcmp(command->name, name) == 0)
      return command;
  }
  return NULL;
}

static json_t *call(struct control *control, struct client *client, const json_t *body,
                    struct sb_error *error) {
  const char *name = json_string_value(json_object_get(body, "cmd"));
  const struct control_command *command = find_command(control, name);
  if (!command) {
    _cleanup_free_ char *shown = escape_string(name ? name : "");
    sb_fail(error, SB_CODE_USAGE, 0, "unknown command '%s'", shown);
    sb_hint(error, "see docs/PROTOCOL.md");
    return NULL;
  }
  static const int none[FD_PASS_LIMIT] = {-1, -1, -1, -1};
  bool takes = command->takes_descriptors && client->fd_sets > 0;
  struct request request = {
      .control = control, .client = client, .body = body, .fds = takes ? client->fds[0] : none};
  json_t *reply = command->handler(control->context, &request, error);
  if (takes)
    drop_oldest_fds(client);
  return reply;
}

static void handle_line(struct control *control, struct client *client, const char *line,
                        size_t length) {
  _cleanup_error_ struct sb_error error = {0};
  json_error_t problem;
  json_t *body = json_loadb(line, length, JSON_REJECT_DUPLICATES, &problem);
  const json_t *tag = json_object_get(body, "tag");
  json_t *reply = NULL;
  if (!json_is_object(body)) {
    _cleanup_free_ char *shown = escape_string(problem.text);
    sb_fail(&error, SB_CODE_USAGE, 0, "not a JSON object: %s", shown);
  } else {
    reply = call(control, client, body, &error);
  }
  if (error.message)
    send_error(client, &error, tag);
  else if (reply)
    control_send(client, reply, tag, NULL, 0);
  json_decref(body);
}

static void take_line(struct control *control, struct client *client) {
  const char *end = memchr(client->input.data, '\n', client->input.length);
  size_t length = (size_t)(end - client->input.data), rest = client->input.length - length - 1;
  handle_line(control, client, client->input.data, length);
  memmove(client->input.data, end + 1, rest);
  client->input.length = rest;
}

static void look_for_line(struct client *client) {
  client->has_line = !client->closing && client->input.length > 0 &&
                     memchr(client->input.data, '\n', client->input.length);
  if (client->has_line || client->closing || client->input.length <= CONTROL_LINE_LIMIT)
    return;
  _cleanup_error_ struct sb_error error = {0};
  sb_fail(&error, SB_CODE_USAGE, 0, "the line is longer than %u bytes", CONTROL_LINE_LIMIT);
  send_error(client, &error, NULL);
  client->closing = true;
}

static void adopt_fds(struct client *client, const int fds[FD_PASS_LIMIT]) {
  if (fds[0] < 0)
    return;
  if (client->fd_sets == FD_QUEUE_LIMIT)
    drop_oldest_fds(client);
  memcpy(client->fds[client->fd_sets++], fds, sizeof client->fds[0]);
}

static void receive(struct client *client) {
  char buffer[16384];
  int fds[FD_PASS_LIMIT];
  ssize_t got = fd_receive(client->fd, fds, buffer, sizeof buffer);
  if (got == -EAGAIN || got == -EINTR)
    return;
  if (got <= 0) {
    client->closing = true;
    text_clear(&client->output);
    return;
  }
  adopt_fds(client, fds);
  text_append_bytes(&client->input, buffer, (size_t)got);
  look_for_line(client);
}

/* ---- connections ---- */

static void drop(struct control *control, size_t index) {
  struct client *client = control->clients[index];
  control->clients[index] = control->clients[--control->count];
  control->gone(control->context, client);
  close(client->fd);
  while (client->fd_sets > 0)
    drop_oldest_fds(client);
  text_clear(&client->input);
  text_clear(&client->output);
  free(client->peer);
  free(client);
}

static bool read_same_user(int fd, struct ucred *ret_peer) {
  socklen_t size = sizeof *ret_peer;
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, ret_peer, &size) == 0 &&
         (ret_peer->uid == geteuid() || ret_peer->uid == 0);
}

/* At once: when it answers, somebody waits, and who only sends a line is gone soon. */
static char *describe_peer(const struct ucred *peer) {
  char path[32];
  _cleanup_free_ char *name = NULL;
  size_t length;
  snprintf(path, sizeof path, "/proc/%d/comm", (int)peer->pid);
  if (file_read_at(AT_FDCWD, path, 64, &name, &length) == 0)
    name[strcspn(name, "\n")] = '\0';
  _cleanup_free_ char *shown = escape_string(name ? name : "?");
  return xasprintf("uid %u by %s (pid %d)", (unsigned)peer->uid, shown, (int)peer->pid);
}

const char *control_peer(const struct client *client) {
  return client->peer;
}

#define TOO_MANY                                                                                   \
  "{\"error\":{\"code\":\"system\",\"message\":\"too many connections to the session\","           \
  "\"hint\":\"wait until some of its commands have ended\"}}\n"
#define ELSEWHERE                                                                                    \
  "{\"error\":{\"code\":\"denied\",\"message\":\"the session does not answer from inside a sandbox " \
  "or container\",\"hint\":\"ask from where it was started\"}}\n"

static void turn_away(int fd, const char *line) {
  ssize_t ignored = send(fd, line, strlen(line), MSG_NOSIGNAL | MSG_DONTWAIT);
  (void)ignored;
}

static void accept_client(struct control *control) {
  _cleanup_close_ int fd = accept4(control->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
  struct ucred peer;
  if (fd < 0 || !read_same_user(fd, &peer))
    return;
  bool outside = peer_is_outside(fd, &peer);
  if (!outside || control->count >= CONTROL_CLIENT_LIMIT) {
    turn_away(fd, outside ? TOO_MANY : ELSEWHERE);
    return;
  }
  struct client *client = xcalloc(1, sizeof *client);
  client->fd = steal_fd(&fd);
  client->peer = describe_peer(&peer);
  control->clients[control->count++] = client;
  control_send(client, json_pack("{s:s, s:i}", "event", "event.hello", "version", CONTROL_VERSION),
               NULL, NULL, 0);
}

size_t control_watch(struct control *control, struct pollfd watched[CONTROL_WATCH_LIMIT]) {
  watched[0] = (struct pollfd){.fd = control->listener, .events = POLLIN};
  for (size_t i = 0; i < control->count; i++) {
    const struct client *client = control->clients[i];
    bool waiting = client->output.length > 0, listens = !client->closing && !client->has_line;
    watched[i + 1] = (struct pollfd){
        .fd = client->fd, .events = (short)((listens ? POLLIN : 0) | (waiting ? POLLOUT : 0))};
  }
  return control->count + 1;
}

static bool is_behind(const struct client *client) {
  return client->has_line && !client->closing;
}

bool control_is_behind(const struct control *control) {
  for (size_t i = 0; i < control->count; i++) {
    if (is_behind(control->clients[i]))
      return true;
  }
  return false;
}

static void exchange(struct control *control, struct client *client, short events) {
  bool left = events & (POLLHUP | POLLERR);
  if (events & POLLOUT)
    flush(client);
  if (client->closing && left) {
    text_clear(&client->output); /* nobody reads it any more */
  } else if (!client->closing && !client->has_line && (left || events & POLLIN)) {
    receive(client);
    if (client->due_ns < control->clock_ns) /* who was silent has saved nothing up */
      client->due_ns = control->clock_ns;
  }
}

static struct client *whose_turn(const struct control *control) {
  struct client *next = NULL;
  for (size_t i = 0; i < control->count; i++) {
    struct client *client = control->clients[i];
    if (is_behind(client) && (!next || client->due_ns < next->due_ns))
      next = client;
  }
  return next;
}

/* Each gets as much of our time as any other, so that whoever answers a question does not wait for
 * what others have sent, however much it is; and all together get a turn, for there is a session to
 * be served. */
static void take_turns(struct control *control) {
  struct turn turn = turn_new();
  for (struct client *client; (client = whose_turn(control)) && turn_goes_on(&turn);) {
    uint64_t began = monotonic_ns();
    control->clock_ns = client->due_ns;
    take_line(control, client);
    look_for_line(client);
    client->due_ns += monotonic_ns() - began;
  }
}

void control_dispatch(struct control *control, const struct pollfd *watched, size_t count) {
  for (size_t i = 1; i < count; i++)
    exchange(control, control->clients[i - 1], watched[i].revents);
  take_turns(control);
  for (size_t i = control->count; i-- > 0;) {
    if (control->clients[i]->closing && control->clients[i]->output.length == 0)
      drop(control, i);
  }
  if (watched[0].revents)
    accept_client(control);
}

int control_open(const char *folder, const struct control_command *commands, void *context,
                 void (*gone)(void *context, struct client *client), struct control **ret_control,
                 struct sb_error *error) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  _cleanup_free_ char *path = path_join(folder, "control.sock");
  if (strlen(path) >= sizeof address.sun_path) {
    _cleanup_free_ char *shown = escape_string(path);
    sb_fail(error, SB_CODE_SYSTEM, ENAMETOOLONG, "the control socket '%s'", shown);
    return sb_hint(error, "set XDG_RUNTIME_DIR to a shorter path");
  }
  strcpy(address.sun_path, path);
  _cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) < 0 || listen(fd, 64) < 0) {
    _cleanup_free_ char *shown = escape_string(path);
    return sb_fail_errno(error, "listening at '%s'", shown);
  }
  struct control *control = xcalloc(1, sizeof *control);
  control->listener = steal_fd(&fd);
  control->commands = commands;
  control->context = context;
  control->gone = gone;
  *ret_control = control;
  return 0;
}

void control_close(struct control *control) {
  if (!control)
    return;
  for (size_t i = control->count; i-- > 0;) {
    flush(control->clients[i]);
    drop(control, i);
  }
  close(control->listener); /* its name goes with the session's folder */
  free(control);
}
