/* What the monitor and the connector say to each other, in dynamic mode; see connector.h. Both are
 * our own: what is said is believed, but for the paths, which are the command's. */
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/file.h"
#include "engine/connecting.h"

/* ---- the connector's side ---- */

int line_ask(int channel, const struct connect_question *question) {
  size_t length = offsetof(struct connect_question, path) + strlen(question->path) + 1;
  return fd_send(channel, &question->object, question->object >= 0, question, length);
}

int line_withdraw(int channel, uint64_t id) {
  const struct connect_question question = {.about = CONNECT_WITHDRAWN, .id = id, .object = -1};
  return line_ask(channel, &question);
}

/* While it waits: afterwards it may be gone. */
int line_tell_unreadable(int channel, int proc, pid_t thread) {
  struct connect_question question = {.about = CONNECT_UNREADABLE, .object = -1};
  char name[64];
  _cleanup_free_ char *text = NULL;
  snprintf(name, sizeof name, "%d/comm", thread);
  int result = file_read_at(proc, name, sizeof name, &text, NULL);
  if (result < 0)
    return result;
  snprintf(question.path, sizeof question.path, "%.*s", (int)strcspn(text, "\n"), text);
  return line_ask(channel, &question);
}

int line_read(int channel, struct line_word *ret_word, int *ret_object) {
  int fds[FD_PASS_LIMIT];
  ssize_t got = fd_receive(channel, fds, ret_word, sizeof *ret_word);
  *ret_object = fds[0];
  return got == sizeof *ret_word ? 0 : -EPROTO;
}

/* ---- the monitor's side ---- */

struct unsaid {
  struct line_word word;
  int object; /* or -1 */
};

bool connector_has_unsaid(const struct connector *connector) {
  return connector->unsaid_count > 0;
}

/* The first so many of them. */
static void drop_unsaid(struct connector *connector, size_t count) {
  for (size_t i = 0; i < count; i++) {
    if (connector->unsaid[i].object >= 0)
      close(connector->unsaid[i].object);
  }
  connector->unsaid_count -= count;
  if (connector->unsaid_count > 0)
    memmove(connector->unsaid, connector->unsaid + count,
            connector->unsaid_count * sizeof *connector->unsaid);
}

void connector_forget_unsaid(struct connector *connector) {
  drop_unsaid(connector, connector->unsaid_count);
  free(connector->unsaid);
  connector->unsaid = NULL;
}

/* Without its object there is nothing that the word could allow. */
static void say_later(struct connector *connector, const struct line_word *word, int object) {
  struct unsaid unsaid = {.word = *word,
                          .object = object < 0 ? -1 : fcntl(object, F_DUPFD_CLOEXEC, 0)};
  if (object >= 0 && unsaid.object < 0)
    unsaid.word.result = -errno;
  ARRAY_GROW(connector->unsaid, connector->unsaid_count);
  connector->unsaid[connector->unsaid_count++] = unsaid;
}

static int say_now(const struct connector *connector, const struct line_word *word, int object) {
  return fd_send(connector->channel, &object, object >= 0, word, sizeof *word);
}

static int say(struct connector *connector, const struct line_word *word, int object) {
  int result = connector_has_unsaid(connector) ? -EAGAIN : say_now(connector, word, object);
  if (result != -EAGAIN)
    return result;
  say_later(connector, word, object);
  return 0;
}

int connector_say_more(struct connector *connector) {
  size_t said = 0;
  int result = 0;
  while (result == 0 && said < connector->unsaid_count) {
    const struct unsaid *next = &connector->unsaid[said];
    result = say_now(connector, &next->word, next->object);
    said += result == 0;
  }
  drop_unsaid(connector, said);
  return result == -EAGAIN ? 0 : result;
}

int connector_tell(struct connector *connector, const struct connect_call *call) {
  const struct line_word word = {.is_call = true, .call = *call};
  return say(connector, &word, -1);
}

int connector_answer(struct connector *connector, uint64_t id, int result, int object) {
  const struct line_word word = {.id = id, .result = result};
  return say(connector, &word, object);
}

int connector_listen(const struct connector *connector, struct connect_question *ret_question) {
  int fds[FD_PASS_LIMIT];
  ssize_t got = fd_receive(connector->channel, fds, ret_question, sizeof *ret_question);
  if (got == -EAGAIN)
    return 0;
  if (got <= (ssize_t)offsetof(struct connect_question, path)) {
    if (fds[0] >= 0)
      close(fds[0]);
    return -EPROTO;
  }
  ((char *)ret_question)[got - 1] = '\0';
  ret_question->object = fds[0];
  return 1;
}
