/* Questions about addresses; see drivers-ask.h. */
#include "session/drivers-ask.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/strv.h"
#include "net/drivers/classes.h"
#include "net/drivers/openings.h"
#include "net/guard.h"
#include "policy/grants.h"
#include "session/monitor.h"

struct driver_question {
  struct driver_question *next;
  struct monitor *monitor;
  struct address address;
  uint16_t port;
  uint64_t ticket;
};

static void forget(struct driven *driven, struct driver_question *question) {
  struct driver_question **link = &driven->questions;
  while (*link && *link != question)
    link = &(*link)->next;
  if (*link)
    *link = question->next;
  free(question);
}

static void note_denied(struct driven_answers *answers, const struct driver_question *question) {
  size_t at = answers->denied_count++ % DRIVEN_DENIED;
  answers->denied[at].address = question->address;
  answers->denied[at].port = question->port;
}

bool driven_was_denied(const struct monitor *monitor, const struct address *address,
                       uint16_t port) {
  const struct driven_answers *answers = monitor->network.driven.answers;
  for (size_t i = 0; i < answers->denied_count && i < DRIVEN_DENIED; i++) {
    if (answers->denied[i].port == port && address_equal(&answers->denied[i].address, address))
      return true;
  }
  return false;
}

/* An order that gets lost leaves the packet where it is: it is dropped, and comes again. */
static void settle(struct driver_question *question, bool yes) {
  struct driven *driven = &question->monitor->network.driven;
  struct minder_order order = {.yes = yes, .address = question->address, .port = question->port};
  if (!yes && question->ticket > 0)
    note_denied(driven->answers, question);
  (void)minder_order(&driven->minder, &order);
  forget(driven, question);
}

static void on_answer(void *context, uint64_t ticket, const struct answered *answered) {
  (void)ticket;
  settle(context, answered->answer == ANSWER_ALLOW);
}

/* It comes from a process that parses packets: what policy knows or guards is not asked about, nor
 * a port of a name whose rules deny it. */
static bool may_be_asked(const struct monitor *monitor, const struct sighting *sighting,
                         const struct strv *names) {
  const struct network_settings *network = &monitor->request->plan->network;
  if (!network->may_ask || !monitor->supervision.decisions || guard_reason(&sighting->address) ||
      host_rules_address(network->rules, &sighting->address, sighting->port).verdict !=
          HOST_UNKNOWN)
    return false;
  for (size_t i = 0; i < names->count; i++) {
    if (host_rules_name(network->rules, names->items[i], sighting->port).verdict == HOST_DENIED)
      return false;
  }
  return true;
}

/* If one name alone has led to the address, it is a new port of that name. */
static void ask(struct driver_question *question, const struct sighting *sighting,
                const struct strv *names) {
  struct monitor *monitor = question->monitor;
  struct answered answered = {0};
  char shown[64];
  address_to_text(&sighting->address, shown);
  struct access_request request = {
      .subject = SUBJECT_NETWORK,
      .want = WANT_CONNECT,
      .host = names->count == 1 ? names->items[0] : shown,
      .port = sighting->port,
      .pid = network_owner(monitor, false, &sighting->client, sighting->client_port),
  };
  question->ticket =
      decisions_ask(monitor->supervision.decisions, &request, on_answer, question, &answered);
  if (answered.answer == ANSWER_PENDING)
    return;
  question->ticket = UINT64_MAX; /* answered by somebody all the same, or by his absence */
  settle(question, answered.answer == ANSWER_ALLOW);
}

void driven_ask(struct monitor *monitor, const struct sighting *sighting) {
  struct driven *driven = &monitor->network.driven;
  _cleanup_strv_ struct strv names = {0};
  char ignored[REASON_SIZE];
  struct driver_question *question = xcalloc(1, sizeof *question);
  *question = (struct driver_question){.next = driven->questions,
                                       .monitor = monitor,
                                       .address = sighting->address,
                                       .port = sighting->port};
  driven->questions = question;
  if (monitor->network.ledger)
    ledger_names(monitor->network.ledger, &sighting->address, &names, ignored);
  if (may_be_asked(monitor, sighting, &names))
    ask(question, sighting, &names);
  else
    settle(question, false);
}

void driven_left(struct monitor *monitor, const struct sighting *sighting) {
  struct driver_question *question = monitor->network.driven.questions;
  while (question && (question->port != sighting->port ||
                      !address_equal(&question->address, &sighting->address)))
    question = question->next;
  if (!question)
    return;
  decisions_withdraw(monitor->supervision.decisions, question->ticket);
  forget(&monitor->network.driven, question);
}

void driven_note_supervisors(struct monitor *monitor, bool nobody) {
  struct driven *driven = &monitor->network.driven;
  bool listens = !nobody && monitor->request->plan->network.may_ask;
  if (!driven->ready || driven->gone || driven->listens == listens)
    return;
  knocks_listen(driven->rules, listens);
  driven->listens = listens;
}

/* ---- names that were approved ---- */

#define OPEN_NS ((uint64_t)(OPENING_SHORTEST + OPENING_GRACE) * 1000000000)

bool driven_is_approved(const struct monitor *monitor, const char *name) {
  const struct driven_answers *answers = monitor->network.driven.answers;
  for (size_t i = 0; answers && i < DRIVEN_APPROVED; i++) {
    if (answers->approved[i].until_ns > monotonic_ns() &&
        strcmp(answers->approved[i].name, name) == 0)
      return true;
  }
  return false;
}

void driven_note_approved(struct monitor *monitor, const char *name) {
  struct driven_answers *answers = monitor->network.driven.answers;
  if (!answers)
    return;
  size_t at = answers->approved_count++ % DRIVEN_APPROVED;
  snprintf(answers->approved[at].name, sizeof answers->approved[at].name, "%s", name);
  answers->approved[at].until_ns = monotonic_ns() + OPEN_NS;
}

/* Who owns the session has rights over its packet filter, so nobody need be waited for. Approved
 * addresses are few, and asked about again without a person, if others were meant. */
void driven_revoke(struct monitor *monitor, const char *name) {
  _cleanup_free_ char *host = grant_host_of(name);
  struct driven *driven = &monitor->network.driven;
  const struct network_settings *network = &monitor->request->plan->network;
  struct port_classes classes = {0};
  struct address address;
  uint32_t index = 0;
  if (driven->rules < 0)
    return;
  (void)port_classes_new(network->rules, network->may_ask, &classes); /* the plan has seen to it */
  for (size_t i = 0; i < DRIVEN_APPROVED; i++) {
    if (strcmp(driven->answers->approved[i].name, host) == 0)
      driven->answers->approved[i].until_ns = 0;
  }
  (void)filter_flush(driven->rules, EGRESS_WANTED "4");
  (void)filter_flush(driven->rules, EGRESS_WANTED "6");
  while (monitor->network.ledger &&
         ledger_next_address(monitor->network.ledger, host, &index, &address))
    openings_close(driven->rules, &address, classes.count);
}

/* ---- the end ---- */

void driven_forget_questions(struct monitor *monitor) {
  struct driven *driven = &monitor->network.driven;
  while (driven->questions) {
    decisions_withdraw(monitor->supervision.decisions, driven->questions->ticket);
    forget(driven, driven->questions);
  }
}
