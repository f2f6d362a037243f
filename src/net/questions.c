/* The sandbox's resolver. Names that policy allows are looked up outside and answered with a
 * synthetic address; a name that is not allowed never leaves this process: a look-up is a message
 * to whoever owns the domain. */
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "net/questions-private.h"

#define ROUND_LIMIT 64 /* datagrams before others have their turn */

/* ---- sending ---- */

static void set_source(struct msghdr *message, const struct address *source) {
  struct cmsghdr *control = CMSG_FIRSTHDR(message);
  if (source->family == 6) {
    struct in6_pktinfo info = {0};
    memcpy(&info.ipi6_addr, source->bytes, 16);
    *control = (struct cmsghdr){CMSG_LEN(sizeof info), SOL_IPV6, IPV6_PKTINFO};
    memcpy(CMSG_DATA(control), &info, sizeof info);
    message->msg_controllen = CMSG_SPACE(sizeof info);
    return;
  }
  struct in_pktinfo info = {0};
  memcpy(&info.ipi_spec_dst, source->bytes, 4);
  *control = (struct cmsghdr){CMSG_LEN(sizeof info), SOL_IP, IP_PKTINFO};
  memcpy(CMSG_DATA(control), &info, sizeof info);
  message->msg_controllen = CMSG_SPACE(sizeof info);
}

static void send_datagram(struct asker *asker, const uint8_t *bytes, size_t length) {
  union {
    char bytes[CMSG_SPACE(sizeof(struct in6_pktinfo))];
    struct cmsghdr align;
  } control = {0};
  struct iovec part = {(void *)bytes, length};
  struct msghdr message = {.msg_name = &asker->from,
                           .msg_namelen = asker->from_length,
                           .msg_iov = &part,
                           .msg_iovlen = 1,
                           .msg_control = &control,
                           .msg_controllen = sizeof control};
  set_source(&message, &asker->to);
  (void)sendmsg(asker->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void send_stream(struct flow *flow, const uint8_t *bytes, size_t length) {
  uint8_t size[2] = {(uint8_t)(length >> 8), (uint8_t)length};
  end_write(&flow->client, &flow->server, size, sizeof size);
  end_write(&flow->client, &flow->server, bytes, length);
}

void send_reply(struct asker *asker, const struct dns_question *question,
                const struct dns_reply *reply) {
  uint8_t bytes[DNS_ANSWER_SIZE];
  size_t length = dns_write(question, reply, bytes);
  if (asker->flow) {
    send_stream(asker->flow, bytes, length);
    return;
  }
  size_t most = question->has_options && question->options_size > DNS_UDP_SIZE
                    ? question->options_size
                    : DNS_UDP_SIZE;
  if (length > most)
    length = dns_write_truncated(question, bytes);
  send_datagram(asker, bytes, length);
}

/* ---- names that are completed ---- */

#define MISSING_LIMIT 16
#define MISSING_MS    5000

/* A program that hears "no such name" tries again with the domains of `search` behind it. That is
 * nothing anybody should be asked about or told of: the name itself was. */
struct missing {
  struct {
    char name[HOST_NAME_SIZE];
    uint64_t until_ms;
  } items[MISSING_LIMIT];
  unsigned next;
};

void note_missing(struct relay *relay, const char *name) {
  if (!relay->missing)
    relay->missing = xcalloc(1, sizeof *relay->missing);
  unsigned at = relay->missing->next++ % MISSING_LIMIT;
  strcpy(relay->missing->items[at].name, name);
  relay->missing->items[at].until_ms = loop_now_ms() + MISSING_MS;
}

static bool is_completed(const struct relay *relay, const char *name) {
  if (resolver_completes(relay->resolver, relay->input->hostname, name))
    return true; /* who asks for its own name tries that, too */
  uint64_t now = relay->missing ? loop_now_ms() : 0;
  for (size_t i = 0; relay->missing && i < MISSING_LIMIT; i++) {
    if (relay->missing->items[i].until_ms > now &&
        resolver_completes(relay->resolver, relay->missing->items[i].name, name))
      return true;
  }
  return false;
}

/* ---- deciding ---- */

static bool is_local_name(const struct relay *relay, const char *name) {
  size_t length = strlen(name);
  return strcmp(name, "localhost") == 0 || strcmp(name, relay->input->hostname) == 0 ||
         (length > 10 && strcmp(name + length - 10, ".localhost") == 0);
}

static void reply_with(struct asker *asker, const struct dns_question *question,
                       const struct address *v4, const struct address *v6) {
  struct dns_reply reply = {.code = DNS_OK};
  if (question->type == DNS_TYPE_A || question->type == DNS_TYPE_ANY)
    reply.addresses = v4; /* "any" is content with one (RFC 8482) */
  else if (question->type == DNS_TYPE_AAAA)
    reply.addresses = v6;
  reply.address_count = reply.addresses ? 1 : 0;
  send_reply(asker, question, &reply); /* other types: the name is there, but has none of it */
}

static void reply_loopback(struct asker *asker, const struct dns_question *question) {
  static const struct address v4 = {.family = 4, .bytes = {127, 0, 0, 1}};
  static const struct address v6 = {.family = 6, .bytes = {[15] = 1}};
  reply_with(asker, question, &v4, &v6);
}

void reply_synthetic(struct asker *asker, const struct dns_question *question) {
  struct relay *relay = asker->relay;
  unsigned number = names_add(relay->names, question->name);
  struct address v4 = names_v4(number), v6 = names_v6(number);
  bool has_v6 = relay->input->sockets[INSIDE_TCP6] >= 0;
  reply_with(asker, question, &v4, has_v6 ? &v6 : NULL);
}

static void reply_reverse(struct asker *asker, const struct dns_question *question) {
  static const struct address loopback4 = {.family = 4, .bytes = {127}},
                              loopback6 = {.family = 6, .bytes = {[15] = 1}};
  struct dns_reply reply = {.code = DNS_OK};
  reply.pointer = names_find(asker->relay->names, &question->reversed);
  if (address_within(&question->reversed, &loopback4, 8) ||
      address_equal(&question->reversed, &loopback6))
    reply.pointer = "localhost";
  if (!reply.pointer)
    reply.code = DNS_NO_SUCH_NAME;
  if (question->type != DNS_TYPE_PTR && question->type != DNS_TYPE_ANY)
    reply.pointer = NULL; /* the name is there, but has none of it */
  send_reply(asker, question, &reply);
}

static void reply_code(struct asker *asker, const struct dns_question *question,
                       enum dns_code code) {
  if (code == DNS_NO_SUCH_NAME)
    note_missing(asker->relay, question->name);
  send_reply(asker, question, &(struct dns_reply){.code = code});
}

void reply_refused(struct asker *asker, const struct dns_question *question, const char *reason,
                   bool asked) {
  asker->relay->input->ledger->denied_questions++;
  note_missing(asker->relay, question->name);
  relay_note_denied(asker->relay,
                    &(struct refusal){.host = question->name, .reason = reason, .asked = asked});
  send_reply(asker, question, &(struct dns_reply){.code = DNS_NO_SUCH_NAME, .blocked = true});
}

static void reply_denied(struct asker *asker, const struct dns_question *question,
                         const struct host_rule *rule) {
  reply_refused(asker, question,
                rule ? rule->written : "not in network.allow: the name was not looked up", false);
}

/* ---- looking outside ---- */

struct asked *asked_new(const struct asker *asker, const uint8_t *message, size_t length) {
  struct asked *asked = xcalloc(1, sizeof *asked);
  asked->asker = *asker;
  asked->length = length;
  memcpy(asked->message, message, length);
  asker->relay->asked_count++;
  return asked;
}

void asked_free(struct asked *asked) {
  if (asked->asker.flow)
    asked->asker.flow->asked = NULL;
  asked->asker.relay->asked_count--;
  free(asked);
}

static void on_resolved(void *context, const struct resolved *resolved) {
  struct asked *asked = context;
  struct asker asker = asked->asker;
  struct dns_question question;
  (void)dns_read(asked->message, asked->length, &question); /* it was read before */
  if (resolved->status == RESOLVE_OK && asker.relay->openings.fd >= 0) {
    answer_real(asked, &question, resolved);
    if (asker.flow && !asker.flow->asked)
      questions_read_stream(asker.flow);
    return;
  }
  static const enum dns_code codes[] = {[RESOLVE_NO_SUCH_NAME] = DNS_NO_SUCH_NAME,
                                        [RESOLVE_NO_ADDRESS] = DNS_OK, /* and nothing with it */
                                        [RESOLVE_FAILED] = DNS_SERVER_FAILURE};
  if (resolved->status == RESOLVE_OK)
    reply_synthetic(&asker, &question);
  else
    reply_code(&asker, &question, codes[resolved->status]);
  asked_free(asked);
  if (asker.flow)
    questions_read_stream(asker.flow);
}

void asked_look_outside(struct asked *asked, const char *name) {
  resolver_ask(asked->asker.relay->resolver, name, on_resolved, asked);
}

static void look_outside(struct asker *asker, const struct dns_question *question,
                         const uint8_t *message, size_t length) {
  if (asker->relay->asked_count >= ASKED_LIMIT) {
    reply_code(asker, question, DNS_SERVER_FAILURE);
    return;
  }
  struct asked *asked = asked_new(asker, message, length);
  if (asker->flow)
    asker->flow->asked = asked;
  asked_look_outside(asked, question->name);
}

void questions_forget(struct flow *flow) {
  resolver_withdraw(flow->relay->resolver, flow->asked);
  unlink_opening(flow->asked);
  unlink_waiting(flow->asked);
  asked_free(flow->asked);
}

static void answer(struct asker *asker, const uint8_t *message, size_t length) {
  struct relay *relay = asker->relay;
  struct dns_question question;
  int result = dns_read(message, length, &question);
  if (result < 0)
    return;
  relay->input->ledger->questions++;
  if (result != DNS_OK) {
    reply_code(asker, &question, (enum dns_code)result);
    return;
  }
  if (question.is_reverse) {
    reply_reverse(asker, &question);
    return;
  }
  if (question.name[0] == '\0') { /* without a root there would be no names at all */
    reply_code(asker, &question, question.is_root ? DNS_OK : DNS_NO_SUCH_NAME);
    return;
  }
  if (is_local_name(relay, question.name)) {
    reply_loopback(asker, &question);
    return;
  }
  struct host_decision decision = host_rules_name(relay->input->rules, question.name, 0);
  bool known = decision.verdict == HOST_ALLOWED;
  if (!known && is_completed(relay, question.name)) {
    reply_code(asker, &question, DNS_NO_SUCH_NAME);
    return;
  }
  if (!known && (decision.verdict == HOST_DENIED || !relay->input->may_ask))
    reply_denied(asker, &question, decision.rule);
  else if (!known && relay->input->ledger->nobody_to_ask)
    reply_unasked(asker, &question, message, length);
  else if (!known && relay->openings.fd >= 0)
    reply_when_asked(asker, &question, message, length);
  else if (!known || relay->input->upstream.kind != UPSTREAM_NONE)
    reply_synthetic(asker, &question); /* nobody outside is asked before somebody says yes */
  else
    look_outside(asker, &question, message, length);
}

/* ---- receiving ---- */

void questions_read_datagrams(struct relay *relay, int fd) {
  for (int round = 0; round < ROUND_LIMIT; round++) {
    uint8_t bytes[QUESTION_SIZE];
    size_t length;
    struct endpoint client, target;
    if (!datagram_receive(fd, bytes, sizeof bytes, &length, &client, &target))
      return;
    struct asker asker = {.relay = relay, .fd = fd, .to = target.address};
    asker.from_length = address_to_sockaddr(&client.address, client.port, &asker.from);
    if (length > 0)
      answer(&asker, bytes, length);
  }
}

/* By TCP: a length, then the message. What has come of one is taken, not only looked at: on
 * loopback a few bytes of a large packet that stay with the kernel can keep its window closed for
 * good. */
struct stream {
  size_t length;
  uint8_t bytes[2 + QUESTION_SIZE];
};

/* False: there is no more for now, or the connection is no more. */
static bool fill(struct flow *flow, struct stream *stream) {
  ssize_t got = recv(flow->client.watch.fd, stream->bytes + stream->length,
                     sizeof stream->bytes - stream->length, 0);
  if (got < 0 && errno == EAGAIN)
    return false;
  if (got <= 0) { /* an end; if it is in the middle of a question, that one has none */
    flow_close(flow, got < 0 || stream->length > 0);
    return false;
  }
  stream->length += (size_t)got;
  return true;
}

/* Answers the first question, once it is whole. */
static bool answer_first(struct flow *flow, struct stream *stream) {
  size_t length = stream->length >= 2 ? (size_t)stream->bytes[0] << 8 | stream->bytes[1] : 0;
  if (stream->length >= 2 && (length == 0 || length > QUESTION_SIZE)) {
    flow_close(flow, true);
    return false;
  }
  if (stream->length < 2 || stream->length < 2 + length)
    return fill(flow, stream);
  struct asker asker = {.relay = flow->relay, .flow = flow, .fd = -1};
  uint8_t message[QUESTION_SIZE];
  memcpy(message, stream->bytes + 2, length);
  stream->length -= 2 + length;
  memmove(stream->bytes, stream->bytes + 2 + length, stream->length);
  answer(&asker, message, length);
  return true;
}

/* One at a time. What is answered at once comes back here while this is at work: thousands of
 * questions in a row would each need a place on the stack. */
void questions_read_stream(struct flow *flow) {
  if (flow->answering)
    return;
  if (!flow->stream)
    flow->stream = xcalloc(1, sizeof *flow->stream);
  flow->answering = true;
  (void)end_flush(&flow->client, &flow->server);
  for (int i = 0; flow->state == FLOW_QUESTIONS && !flow->asked && !flow->server.pending; i++) {
    if (i == ROUND_LIMIT)
      want_turn(flow);
    if (i == ROUND_LIMIT || !answer_first(flow, flow->stream))
      break;
  }
  flow->answering = false;
}
