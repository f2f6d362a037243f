/* Names that no rule knows, in dynamic mode. With the relay it is the connection that waits for a
 * decision; with a driver there is nothing of ours in its way, so it is the look-up. No name leaves
 * this process before somebody has allowed it. */
#include <stdlib.h>
#include <string.h>

#include "net/questions-private.h"

/* A program that still waits asks again: every 30 seconds, as resolv.conf inside says. */
#define AGAIN_MS 35000

static const struct dns_reply unasked_reply = {.code = DNS_NO_SUCH_NAME, .blocked = true};

/* ---- who waits ---- */

static void link_waiting(struct asked *asked, uint32_t id) {
  struct relay *relay = asked->asker.relay;
  asked->id = id;
  asked->next = relay->waiting;
  relay->waiting = asked;
}

static bool is_waited_for(const struct relay *relay, uint32_t id) {
  for (const struct asked *at = relay->waiting; at; at = at->next) {
    if (at->id == id)
      return true;
  }
  return false;
}

static bool take_out(struct asked *asked) {
  struct asked **link = &asked->asker.relay->waiting;
  while (*link && *link != asked)
    link = &(*link)->next;
  if (!*link)
    return false;
  *link = asked->next;
  asked->next = NULL;
  return true;
}

void unlink_waiting(struct asked *asked) {
  struct relay *relay = asked->asker.relay;
  if (take_out(asked) && asked->asks && !is_waited_for(relay, asked->id))
    relay_withdraw(relay, asked->id);
}

bool questions_wait(const struct flow *flow) {
  return flow->asked && flow->asked->asks;
}

/* By UDP nobody says that he has gone. */
void questions_tick(struct relay *relay, uint64_t now) {
  struct asked *next;
  for (struct asked *asked = relay->waiting; asked; asked = next) {
    next = asked->next;
    if (!asked->asks || asked->asker.flow || now < asked->until_ms)
      continue;
    unlink_waiting(asked);
    asked_free(asked);
  }
}

/* ---- names that nobody can allow ---- */

static bool send_ask(struct relay *relay, const struct asker *asker, struct link_message *message) {
  struct sockaddr_storage peer = asker->from;
  socklen_t size = sizeof peer;
  message->stream = asker->flow != NULL;
  if (!asker->flow ||
      getpeername(asker->flow->client.watch.fd, (struct sockaddr *)&peer, &size) == 0)
    message->client = address_from_sockaddr(&peer, &message->client_port);
  return send(relay->line.fd, message, sizeof *message, MSG_NOSIGNAL | MSG_DONTWAIT) > 0;
}

/* The monitor would say no to a connection: better that the name does not exist, which a program
 * believes at once, than a reset, which some try again for minutes. The first time it is asked all
 * the same, so that it is told and written down as every such denial is. Then the answer waits
 * until it has looked whose question it is: a program that hears "no" may be gone. */
void reply_unasked(struct asker *asker, const struct dns_question *question, const uint8_t *bytes,
                   size_t length) {
  struct relay *relay = asker->relay;
  const struct ledger_line *line =
      ledger_find(relay->input->ledger, question->name, 0, false, UNASKED);
  struct link_message message = {.kind = LINK_ASK, .id = ++relay->last_question};
  strcpy(message.host, question->name);
  bool told = line && line->connections == 0 && send_ask(relay, asker, &message);
  relay->input->ledger->denied_questions++;
  note_missing(relay, question->name);
  relay_note_denied(relay,
                    &(struct refusal){.host = question->name, .reason = UNASKED, .asked = told});
  if (told && !asker->flow && relay->asked_count < ASKED_LIMIT)
    link_waiting(asked_new(asker, bytes, length), message.id);
  else
    send_reply(asker, question, &unasked_reply);
}

/* ---- names that somebody may allow ---- */

static bool is_same_asker(const struct asker *one, const struct asker *other) {
  return !one->flow && !other->flow && one->fd == other->fd &&
         one->from_length == other->from_length &&
         memcmp(&one->from, &other->from, one->from_length) == 0;
}

/* The same question, sent once more: it goes on waiting. */
static bool is_repeated(struct asker *asker, const uint8_t *bytes, size_t length) {
  for (struct asked *at = asker->relay->waiting; at; at = at->next) {
    if (!at->asks || !is_same_asker(&at->asker, asker) || at->length != length ||
        memcmp(at->message, bytes, length) != 0)
      continue;
    at->until_ms = loop_now_ms() + AGAIN_MS;
    return true;
  }
  return false;
}

/* Those who want the same wait for the same answer. 0: it cannot be asked. */
static uint32_t ask(const struct asker *asker, const char *name) {
  struct relay *relay = asker->relay;
  for (const struct asked *at = relay->waiting; at; at = at->next) {
    struct dns_question other;
    (void)dns_read(at->message, at->length, &other); /* it was read before */
    if (at->asks && strcmp(other.name, name) == 0)
      return at->id;
  }
  struct link_message message = {.kind = LINK_ASK, .id = ++relay->last_question};
  strcpy(message.host, name);
  return send_ask(relay, asker, &message) ? message.id : 0;
}

void reply_when_asked(struct asker *asker, const struct dns_question *question,
                      const uint8_t *bytes, size_t length) {
  struct relay *relay = asker->relay;
  if (is_repeated(asker, bytes, length))
    return;
  uint32_t id = relay->asked_count < ASKED_LIMIT ? ask(asker, question->name) : 0;
  if (id == 0) {
    reply_refused(asker, question, "too many questions at once", false);
    return;
  }
  struct asked *asked = asked_new(asker, bytes, length);
  asked->asks = true;
  asked->until_ms = loop_now_ms() + AGAIN_MS;
  if (asker->flow) {
    asker->flow->asked = asked;
    asker->flow->until_ms = 0; /* the monitor has a clock of its own for questions */
  }
  link_waiting(asked, id);
}

/* ---- answers ---- */

static void answer_one(struct asked *asked, const struct link_message *message) {
  struct asker asker = asked->asker;
  struct dns_question question;
  (void)dns_read(asked->message, asked->length, &question); /* it was read before */
  bool real = asker.relay->openings.fd >= 0;
  if (asker.flow)
    asker.flow->until_ms = loop_now_ms() + READ_MS; /* for the next one */
  if (message->allowed && real) {                   /* also if somebody came in between */
    asked->approved = true;
    asked->asks = false;
    asked_look_outside(asked, question.name);
    return;
  }
  if (message->allowed)
    reply_synthetic(&asker, &question);
  else if (asked->asks)
    reply_refused(&asker, &question, message->reason, true);
  else
    send_reply(&asker, &question, &unasked_reply);
  asked_free(asked);
  if (asker.flow)
    questions_read_stream(asker.flow);
}

void questions_answered(struct relay *relay, const struct link_message *message) {
  struct asked *theirs = NULL, *next;
  for (struct asked *asked = relay->waiting; asked; asked = next) {
    next = asked->next;
    if (asked->id != message->id || !take_out(asked))
      continue;
    asked->next = theirs;
    theirs = asked;
  }
  for (; theirs; theirs = next) {
    next = theirs->next;
    theirs->next = NULL;
    answer_one(theirs, message);
  }
}
