/* The other end of a control socket; see client.h. */
#include "session/client.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "core/json.h"
#include "core/path.h"
#include "session/control.h"

#define MESSAGE_LIMIT (64u << 20)

static void set_timeout(int fd, int option, unsigned milliseconds) {
  struct timeval patience = {.tv_sec = milliseconds / 1000,
                             .tv_usec = (suseconds_t)(milliseconds % 1000) * 1000};
  setsockopt(fd, SOL_SOCKET, option, &patience, sizeof patience);
}

/* Who has asked a session that is stopped, and did not wait, has a place in its queue until it goes
 * on: when that is full, the next one waits for a place. Returns the descriptor or a negative
 * errno; EAGAIN if patience has ended. */
static int connect_to(const char *folder, unsigned patience_ms) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  _cleanup_free_ char *path = path_join(folder, "control.sock");
  if (strlen(path) >= sizeof address.sun_path)
    return -ENAMETOOLONG;
  strcpy(address.sun_path, path);
  _cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0)
    return -errno;
  set_timeout(fd, SO_SNDTIMEO, patience_ms);
  if (connect(fd, (struct sockaddr *)&address, sizeof address) < 0)
    return -errno;
  set_timeout(fd, SO_SNDTIMEO, CLIENT_WAIT_FOREVER);
  return steal_fd(&fd);
}

/* A session answers to the one who started it; nobody else can pretend to be it either. */
static int check_owner(int fd, struct sb_error *error) {
  struct ucred peer;
  socklen_t size = sizeof peer;
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
      (peer.uid == geteuid() || geteuid() == 0))
    return 0;
  return sb_fail(error, SB_CODE_DENIED, 0, "the session belongs to another user");
}

void client_set_patience(const struct client_connection *connection, unsigned milliseconds) {
  set_timeout(connection->fd, SO_RCVTIMEO, milliseconds);
}

static int fail_silent(struct sb_error *error) {
  sb_fail(error, SB_CODE_SYSTEM, 0, "the session does not answer");
  return sb_hint(error, "was it stopped with Ctrl-Z? Bring it back with 'fg' or 'bg', or end it "
                        "with 'sandbox kill'");
}

int client_begin(const char *folder, unsigned patience_ms, struct client_connection *ret_connection,
                 struct sb_error *error) {
  struct client_connection connection = {.fd = connect_to(folder, patience_ms)};
  if (connection.fd == -EAGAIN)
    return fail_silent(error);
  if (connection.fd < 0) {
    sb_fail(error, SB_CODE_NOT_FOUND, -connection.fd, "the session does not answer");
    return sb_hint(error, "it has ended: 'sandbox ps' lists those that run");
  }
  client_set_patience(&connection, patience_ms);
  if (check_owner(connection.fd, error) < 0) {
    client_close(&connection);
    return -1;
  }
  *ret_connection = connection;
  return 0;
}

static int open_with_patience(const char *folder, unsigned patience_ms,
                              struct client_connection *ret_connection, struct sb_error *error) {
  struct client_connection connection = {.fd = -1};
  json_t *hello = NULL;
  if (client_begin(folder, patience_ms, &connection, error) < 0)
    return -1;
  if (client_read(&connection, &hello, error) < 0) {
    client_close(&connection);
    return -1;
  }
  json_decref(hello);
  *ret_connection = connection;
  return 0;
}

int client_open(const char *folder, struct client_connection *ret_connection,
                struct sb_error *error) {
  return open_with_patience(folder, CLIENT_PATIENCE, ret_connection, error);
}

void client_close(struct client_connection *connection) {
  if (connection->fd >= 0)
    close(connection->fd);
  text_clear(&connection->input);
  connection->fd = -1;
}

/* Whoever uses this library may have SIGPIPE as it was. */
static int send_all(int fd, const char *data, size_t length) {
  while (length > 0) {
    ssize_t sent = send(fd, data, length, MSG_NOSIGNAL);
    if (sent < 0 && errno != EINTR)
      return -errno;
    data += sent > 0 ? sent : 0;
    length -= sent > 0 ? (size_t)sent : 0;
  }
  return 0;
}

/* Its end may come between our words and its answer. */
static bool has_ended(ssize_t result) {
  return result == 0 || result == -ECONNRESET || result == -EPIPE;
}

static int fail_ended(ssize_t result, struct sb_error *error) {
  return sb_fail(error, has_ended(result) ? SB_CODE_NOT_FOUND : SB_CODE_SYSTEM, (int)-result,
                 has_ended(result) ? "the session has ended" : "talking to the session");
}

int client_send(struct client_connection *connection, json_t *request, const int *fds,
                size_t fd_count, struct sb_error *error) {
  _cleanup_free_ char *line = json_line(request);
  json_decref(request);
  size_t length = strlen(line);
  if (length > CONTROL_LINE_LIMIT) {
    sb_fail(error, SB_CODE_USAGE, 0, "arguments and environment are too long for a session");
    return sb_hint(error, "pass a file instead: together they may have %u bytes",
                   CONTROL_LINE_LIMIT);
  }
  int result;
  if (fd_count > 0) {
    /* With the first byte, so that the rest may be longer than one send. */
    result = fd_send(connection->fd, fds, fd_count, line, 1);
    if (result == 0)
      result = send_all(connection->fd, line + 1, length - 1);
  } else {
    result = send_all(connection->fd, line, length);
  }
  return result < 0 ? fail_ended(result, error) : 0;
}

static int fail_message(const json_t *message, struct sb_error *error) {
  const json_t *problem = json_object_get(message, "error");
  const char *hint = json_string_value(json_object_get(problem, "hint"));
  const char *text = json_string_value(json_object_get(problem, "message"));
  const char *code = json_string_value(json_object_get(problem, "code"));
  sb_fail(error, sb_code_named(code), 0, "%s", text ? text : "refused");
  return hint ? sb_hint(error, "%s", hint) : -1;
}

static int parse(const char *line, size_t length, json_t **ret_message, struct sb_error *error) {
  json_t *message = json_loadb(line, length, 0, NULL);
  if (!message)
    return sb_fail(error, SB_CODE_SYSTEM, 0, "the session's answer is not JSON");
  if (json_object_get(message, "error")) {
    int result = fail_message(message, error);
    json_decref(message);
    return result;
  }
  *ret_message = message;
  return 0;
}

int client_read(struct client_connection *connection, json_t **ret_message,
                struct sb_error *error) {
  struct text *input = &connection->input;
  for (;;) {
    char *end = input->length ? memchr(input->data, '\n', input->length) : NULL;
    if (end) {
      size_t length = (size_t)(end - input->data);
      int result = parse(input->data, length, ret_message, error);
      memmove(input->data, end + 1, input->length - length - 1);
      input->length -= length + 1;
      return result;
    }
    char buffer[16384];
    int fds[FD_PASS_LIMIT];
    ssize_t got = fd_receive(connection->fd, fds, buffer, sizeof buffer);
    if (got <= 0)
      return got == -EAGAIN ? fail_silent(error) : fail_ended(got, error);
    if (input->length > MESSAGE_LIMIT)
      return sb_fail(error, SB_CODE_SYSTEM, 0, "the session's answer is too long");
    if (fds[0] >= 0 || !input->length)
      memcpy(connection->fds, fds, sizeof fds);
    text_append_bytes(input, buffer, (size_t)got);
  }
}

bool client_has_message(const struct client_connection *connection) {
  const struct text *input = &connection->input;
  return input->length && memchr(input->data, '\n', input->length);
}

int client_call(const char *folder, unsigned patience_ms, json_t *request, json_t **ret_reply,
                struct sb_error *error) {
  _cleanup_client_ struct client_connection connection = {.fd = -1};
  if (open_with_patience(folder, patience_ms, &connection, error) < 0) {
    json_decref(request);
    return -1;
  }
  if (client_send(&connection, request, NULL, 0, error) < 0)
    return -1;
  return client_read(&connection, ret_reply, error);
}
