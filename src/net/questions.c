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
#include "net/dns.h"
#include "net/drivers/openings.h"
#include "net/flow.h"
#include "net/guard.h"

#define QUESTION_SIZE    1024
#define ASKED_LIMIT      1024 /* at the same time */
#define ROUND_LIMIT      64   /* datagrams before others have their turn */
#define OPENINGS_AT_ONCE 64

/* Where an answer goes. */
struct asker {
  struct relay *relay;
  struct flow *flow; /* by TCP, or NULL */
  int fd;            /* by UDP */
  struct sockaddr_storage from;
  socklen_t from_length;
  struct address to; /* whom it asked: the answer comes from there */
};

/* A question that waits for an answer from outside, for the monitor's word, or for addresses to be
 * opened. */
struct asked {
  struct asked *next; /* of those that wait for the monitor, or for a driver's minder */
  uint32_t id;
  struct address addresses[RESOLVE_LIMIT]; /* real ones, while they are opened */
  size_t address_count;
  uint32_t ttl, classes;
  bool sent; /* the minder knows */
  struct asker asker;
  uint8_t message[QUESTION_SIZE];
  size_t length;
};

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

static void send_reply(struct asker *asker, const struct dns_question *question,
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

static void note_missing(struct relay *relay, const char *name) {
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

static void reply_synthetic(struct asker *asker, const struct dns_question *question) {
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

static void reply_refused(struct asker *asker, const struct dns_question *question,
                          const char *reason) {
  asker->relay->input->ledger->denied_questions++;
  note_missing(asker->relay, question->name);
  relay_note_denied(asker->relay, &(struct refusal){.host = question->name, .reason = reason});
  send_reply(asker, question, &(struct dns_reply){.code = DNS_NO_SUCH_NAME, .blocked = true});
}

static void reply_denied(struct asker *asker, const struct dns_question *question,
                         const struct host_rule *rule) {
  reply_refused(asker, question,
                rule ? rule->written : "not in network.allow: the name was not looked up");
}

/* ---- names that nobody can allow ---- */

static const struct dns_reply unasked_reply = {.code = DNS_NO_SUCH_NAME, .blocked = true};

static void free_asked(struct asked *asked) {
  if (asked->asker.flow)
    asked->asker.flow->asked = NULL;
  asked->asker.relay->asked_count--;
  free(asked);
}

/* Until it has looked whose question it is: a program that hears "no" may be gone. */
static void wait_for_monitor(const struct asker *asker, uint32_t id, const uint8_t *message,
                             size_t length) {
  struct relay *relay = asker->relay;
  struct asked *asked = xcalloc(1, sizeof *asked);
  asked->next = relay->unasked;
  asked->id = id;
  asked->asker = *asker;
  asked->length = length;
  memcpy(asked->message, message, length);
  relay->asked_count++;
  relay->unasked = asked;
}

/* The monitor would say no to a connection: better that the name does not exist, which a program
 * believes at once, than a reset, which some try again for minutes. The first time it is asked all
 * the same, so that it is told and written down as every such denial is. */
static void reply_unasked(struct asker *asker, const struct dns_question *question,
                          const uint8_t *bytes, size_t length) {
  struct relay *relay = asker->relay;
  const struct ledger_line *line =
      ledger_find(relay->input->ledger, question->name, 0, false, UNASKED);
  struct link_message message = {.kind = LINK_ASK, .id = ++relay->last_question};
  strcpy(message.host, question->name);
  if (!asker->flow)
    message.client = address_from_sockaddr(&asker->from, &message.client_port);
  bool told = line && line->connections == 0 &&
              send(relay->line.fd, &message, sizeof message, MSG_NOSIGNAL | MSG_DONTWAIT) > 0;
  relay->input->ledger->denied_questions++;
  note_missing(relay, question->name);
  relay_note_denied(relay,
                    &(struct refusal){.host = question->name, .reason = UNASKED, .asked = told});
  if (told && !asker->flow && relay->asked_count < ASKED_LIMIT)
    wait_for_monitor(asker, message.id, bytes, length);
  else
    send_reply(asker, question, &unasked_reply);
}

void questions_answered(struct relay *relay, const struct link_message *message) {
  struct asked **link = &relay->unasked;
  while (*link && (*link)->id != message->id)
    link = &(*link)->next;
  struct asked *asked = *link;
  if (!asked)
    return;
  *link = asked->next;
  struct dns_question question;
  (void)dns_read(asked->message, asked->length, &question); /* it was read before */
  if (message->allowed)                                     /* somebody came in between */
    reply_synthetic(&asked->asker, &question);
  else
    send_reply(&asked->asker, &question, &unasked_reply);
  free_asked(asked);
}

/* ---- real addresses, for a driver ---- */

/* Whether there is a port at which the packet filter could let it pass. What the guard keeps is not
 * opened, but a rule that lists it lets it through all the same. */
static bool may_be_answered(const struct relay *relay, const struct dns_question *question,
                            const struct address *address, char ret_reason[REASON_SIZE]) {
  const struct host_rules *rules = relay->input->rules;
  struct address unmapped = address_unmapped(address);
  if (unmapped.family != address->family) {
    snprintf(ret_reason, REASON_SIZE, "leads to an IPv4 address in the form of IPv6");
    return false; /* a program would use IPv4, which was not asked for */
  }
  for (size_t i = 0; i < rules->allow_count; i++) {
    const struct host_rule *rule = &rules->allow[i];
    if (rule->kind == HOST_NETWORK && address_within(address, &rule->network, rule->bits) &&
        guard_allows(rules, question->name, address, rule->first_port, ret_reason))
      return true;
  }
  return guard_allows(rules, question->name, address, 0, ret_reason);
}

static bool is_of_type(const struct address *address, uint16_t type) {
  return address->family == 6 ? type == DNS_TYPE_AAAA : type == DNS_TYPE_A || type == DNS_TYPE_ANY;
}

static void reply_real(struct asked *asked, const struct dns_question *question, bool opened) {
  struct asker asker = asked->asker;
  struct dns_reply reply = {.code = opened ? DNS_OK : DNS_SERVER_FAILURE,
                            .addresses = asked->addresses,
                            .address_count = opened ? asked->address_count : 0,
                            .ttl = asked->ttl};
  send_reply(&asker, question, &reply);
  free_asked(asked);
}

static bool send_opening(struct asked *asked) {
  struct relay *relay = asked->asker.relay;
  uint32_t seconds = asked->ttl > OPENING_SHORTEST ? asked->ttl : OPENING_SHORTEST;
  struct opening opening = {.id = ++relay->last_question,
                            .classes = asked->classes,
                            .seconds = seconds + OPENING_GRACE,
                            .count = (uint32_t)asked->address_count};
  memcpy(opening.addresses, asked->addresses, sizeof opening.addresses);
  asked->id = opening.id;
  asked->sent = send(relay->openings.fd, &opening, sizeof opening, MSG_NOSIGNAL | MSG_DONTWAIT) > 0;
  relay->openings_sent += asked->sent;
  return asked->sent;
}

/* No more at a time than certainly fit into the line, there and back; the others wait here. */
static void send_openings(struct relay *relay) {
  for (struct asked *at = relay->opening; at; at = at->next) {
    if (!at->sent && (relay->openings_sent >= OPENINGS_AT_ONCE || !send_opening(at)))
      return;
  }
}

static void ask_to_open(struct asked *asked) {
  struct relay *relay = asked->asker.relay;
  struct asked **last = &relay->opening;
  while (*last)
    last = &(*last)->next;
  *last = asked;
  send_openings(relay);
}

/* Keeps those that are asked for and may be answered. False: there were some, and none may be. */
static bool choose_addresses(struct asked *asked, const struct dns_question *question,
                             const struct resolved *resolved, char ret_reason[REASON_SIZE]) {
  size_t usable = 0;
  for (size_t i = 0; i < resolved->count; i++) {
    const struct address *address = &resolved->addresses[i];
    if (!may_be_answered(asked->asker.relay, question, address, ret_reason))
      continue;
    usable++;
    if (is_of_type(address, question->type))
      asked->addresses[asked->address_count++] = *address;
  }
  return usable > 0 || resolved->count == 0;
}

/* What becomes of the connections is not known here; that the name was found is. */
static void note_found(const struct asked *asked, const char *name) {
  struct relay *relay = asked->asker.relay;
  struct host_decision decision = host_rules_name(relay->input->rules, name, 0);
  struct ledger_line *line =
      ledger_find(relay->input->ledger, name, 0, true,
                  decision.rule ? decision.rule->written : "network.mode: full");
  if (!line)
    return;
  line->connections++;
  for (size_t i = 0; i < asked->address_count; i++)
    ledger_lead(relay->input->ledger, line, &asked->addresses[i]);
}

/* The packet filter knows the addresses before the workload does. */
static void answer_real(struct asked *asked, const struct dns_question *question,
                        const struct resolved *resolved) {
  struct relay *relay = asked->asker.relay;
  struct asker asker = asked->asker;
  char reason[REASON_SIZE] = "";
  if (!choose_addresses(asked, question, resolved, reason)) {
    reply_refused(&asker, question, reason);
    free_asked(asked);
    return;
  }
  asked->classes = port_classes_of(&relay->classes, relay->input->rules, question->name);
  note_found(asked, question->name);
  asked->ttl = resolved->ttl < OPENING_TTL_MOST ? resolved->ttl : OPENING_TTL_MOST;
  if (asked->address_count == 0 || asked->classes == 0)
    reply_real(asked, question, true);
  else
    ask_to_open(asked);
}

static void unlink_opening(struct relay *relay, const struct asked *asked) {
  struct asked **link = &relay->opening;
  while (*link && *link != asked)
    link = &(*link)->next;
  if (*link)
    *link = asked->next;
}

void questions_opened(struct relay *relay, uint32_t id, bool done) {
  struct asked *asked = relay->opening;
  struct dns_question question;
  while (asked && !(asked->sent && asked->id == id))
    asked = asked->next;
  if (asked)
    unlink_opening(relay, asked);
  relay->openings_sent--;
  send_openings(relay);
  if (!asked)
    return; /* whoever asked has gone */
  struct flow *flow = asked->asker.flow;
  (void)dns_read(asked->message, asked->length, &question); /* it was read before */
  reply_real(asked, &question, done);
  if (flow)
    questions_read_stream(flow);
}

/* ---- looking outside ---- */

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
  free_asked(asked);
  if (asker.flow)
    questions_read_stream(asker.flow);
}

static void look_outside(struct asker *asker, const struct dns_question *question,
                         const uint8_t *message, size_t length) {
  if (asker->relay->asked_count >= ASKED_LIMIT) {
    reply_code(asker, question, DNS_SERVER_FAILURE);
    return;
  }
  struct asked *asked = xcalloc(1, sizeof *asked);
  asked->asker = *asker;
  asked->length = length;
  memcpy(asked->message, message, length);
  asker->relay->asked_count++;
  if (asker->flow)
    asker->flow->asked = asked;
  resolver_ask(asker->relay->resolver, question->name, on_resolved, asked);
}

void questions_forget(struct flow *flow) {
  resolver_withdraw(flow->relay->resolver, flow->asked);
  unlink_opening(flow->relay, flow->asked);
  free_asked(flow->asked);
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
