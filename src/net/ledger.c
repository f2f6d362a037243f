/* What the relay has carried and refused; see ledger.h. */
#include "net/ledger.h"

#include <string.h>
#include <sys/mman.h>

#include "core/json.h"

struct ledger *ledger_new(void) {
  void *memory = mmap(NULL, sizeof(struct ledger), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory == MAP_FAILED ? NULL : memory;
}

void ledger_free(struct ledger *ledger) {
  if (ledger)
    munmap(ledger, sizeof *ledger);
}

static uint32_t line_count(const struct ledger *ledger) {
  uint32_t count = atomic_load_explicit(&ledger->line_count, memory_order_acquire);
  return count < LEDGER_LINES ? count : LEDGER_LINES;
}

struct ledger_line *ledger_find(struct ledger *ledger, const char *host, uint16_t port,
                                bool allowed, const char *reason) {
  uint32_t count = line_count(ledger);
  for (uint32_t i = 0; i < count; i++) {
    struct ledger_line *line = &ledger->lines[i];
    if (line->port == port && line->allowed == allowed && strcmp(line->host, host) == 0)
      return line;
  }
  if (count == LEDGER_LINES)
    return NULL;
  struct ledger_line *line = &ledger->lines[count];
  *line = (struct ledger_line){.port = port, .allowed = allowed};
  strncpy(line->host, host, sizeof line->host - 1);
  strncpy(line->reason, reason ? reason : "", sizeof line->reason - 1);
  atomic_store_explicit(&ledger->line_count, count + 1, memory_order_release);
  return line;
}

static void add(_Atomic uint64_t *counter, uint64_t amount) {
  atomic_fetch_add_explicit(counter, amount, memory_order_relaxed);
}

void ledger_opened(struct ledger *ledger, struct ledger_line *line) {
  ledger->connections++;
  if (!line) {
    ledger->unlisted++;
    return;
  }
  line->connections++;
  add(&line->active, 1);
  add(&ledger->active, 1);
}

void ledger_carried(struct ledger *ledger, struct ledger_line *line, bool up, size_t bytes) {
  if (!ledger)
    return;
  add(up ? &ledger->sent : &ledger->received, bytes);
  if (line)
    add(up ? &line->sent : &line->received, bytes);
}

void ledger_closed(struct ledger *ledger, struct ledger_line *line) {
  if (!line)
    return;
  add(&line->active, (uint64_t)-1);
  add(&ledger->active, (uint64_t)-1);
}

/* A copy with its ends in place: the writer parses hostile bytes and may have been taken over. */
static struct ledger_line copy_line(const struct ledger *ledger, uint32_t index) {
  struct ledger_line line = ledger->lines[index];
  line.host[sizeof line.host - 1] = '\0';
  line.reason[sizeof line.reason - 1] = '\0';
  return line;
}

/* ---- what names lead to ---- */

static uint32_t lead_count(const struct ledger *ledger) {
  uint32_t count = atomic_load_explicit(&ledger->lead_count, memory_order_acquire);
  return count < LEDGER_LEADS ? count : LEDGER_LEADS;
}

void ledger_lead(struct ledger *ledger, const struct ledger_line *line,
                 const struct address *address) {
  uint32_t count = lead_count(ledger), number = (uint32_t)(line - ledger->lines);
  for (uint32_t i = 0; i < count; i++) {
    if (ledger->leads[i].line == number && address_equal(&ledger->leads[i].address, address))
      return;
  }
  if (count == LEDGER_LEADS)
    return;
  ledger->leads[count] = (struct ledger_lead){.address = *address, .line = number};
  atomic_store_explicit(&ledger->lead_count, count + 1, memory_order_release);
}

void ledger_names(const struct ledger *ledger, const struct address *address, struct strv *names,
                  char ret_reason[REASON_SIZE]) {
  uint32_t count = lead_count(ledger);
  for (uint32_t i = 0; i < count && names->count < LEDGER_NAMES; i++) {
    struct ledger_lead lead = ledger->leads[i];
    if (lead.line >= line_count(ledger) || !address_equal(&lead.address, address))
      continue;
    struct ledger_line line = copy_line(ledger, lead.line);
    if (names->count == 0)
      memcpy(ret_reason, line.reason, REASON_SIZE);
    strv_add(names, line.host);
  }
}

bool ledger_next_address(const struct ledger *ledger, const char *name, uint32_t *index,
                         struct address *ret_address) {
  for (uint32_t count = lead_count(ledger); *index < count;) {
    struct ledger_lead lead = ledger->leads[(*index)++];
    if (lead.line >= line_count(ledger))
      continue;
    struct ledger_line line = copy_line(ledger, lead.line);
    if (strcmp(line.host, name) != 0)
      continue;
    *ret_address = lead.address;
    return true;
  }
  return false;
}

/* ---- for people and programs ---- */

static json_t *line_to_json(const struct ledger_line *line) {
  json_t *object =
      json_pack("{s:i, s:s, s:b, s:I, s:I, s:I, s:I}", "port", (int)line->port, "decision",
                line->allowed ? "allow" : "deny", "asked", line->asked, "connections",
                (json_int_t)line->connections, "active", (json_int_t)line->active, "sent",
                (json_int_t)line->sent, "received", (json_int_t)line->received);
  json_set_string(object, "host", line->host);
  json_set_string(object, "reason", line->reason);
  return object;
}

json_t *ledger_to_json(const struct ledger *ledger) {
  json_t *hosts = json_array();
  for (uint32_t i = 0; i < line_count(ledger); i++) {
    struct ledger_line line = copy_line(ledger, i);
    json_array_append_new(hosts, line_to_json(&line));
  }
  return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o}", "connections",
                   (json_int_t)ledger->connections, "active", (json_int_t)ledger->active, "denied",
                   (json_int_t)ledger->denied, "failed", (json_int_t)ledger->failed, "questions",
                   (json_int_t)ledger->questions, "denied_questions",
                   (json_int_t)ledger->denied_questions, "sent", (json_int_t)ledger->sent,
                   "received", (json_int_t)ledger->received, "unlisted",
                   (json_int_t)ledger->unlisted, "hosts", hosts);
}
