/* What the relay has carried and refused, in memory shared with the monitor: counters and one line
 * for each host, port and verdict. The relay writes, but for one word of the monitor's; the monitor
 * reads at any time, also after the relay's end, and believes no more of it than that it is text
 * and numbers. */
#pragma once

#include <jansson.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/strv.h"
#include "net/address.h"

#define LEDGER_LINES 256
#define LEDGER_LEADS 1024
#define LEDGER_NAMES 8

struct ledger_line {
  char host[HOST_NAME_SIZE];
  uint16_t port;
  uint8_t allowed;
  uint8_t asked;            /* denied by whoever was asked */
  uint8_t recorded;         /* allowed, and the audit log says so */
  char reason[REASON_SIZE]; /* the rule, or why not */
  uint64_t connections;
  _Atomic uint64_t active, sent, received;
};

/* With a driver: an address that the name of a line was answered with. */
struct ledger_lead {
  struct address address;
  uint32_t line;
};

struct ledger {
  uint64_t connections, denied, failed, questions, denied_questions;
  _Atomic uint64_t active, sent, received; /* the relay's annex writes these, too */
  uint64_t unlisted;                       /* connections for which there was no line left */
  _Atomic bool nobody_to_ask; /* the monitor's word: whatever it is asked, it says no */
  _Atomic uint32_t line_count;
  struct ledger_line lines[LEDGER_LINES];
  _Atomic uint32_t lead_count;
  struct ledger_lead leads[LEDGER_LEADS];
};

/* Shared memory; NULL (errno) on failure. */
struct ledger *ledger_new(void);
void ledger_free(struct ledger *ledger);

/* The line of this host, port and verdict, made if need be; NULL if there is none left. */
struct ledger_line *ledger_find(struct ledger *ledger, const char *host, uint16_t port,
                                bool allowed, const char *reason);

/* The line's name leads to the address, if there is room to say so. */
void ledger_lead(struct ledger *ledger, const struct ledger_line *line,
                 const struct address *address);

/* Adds names that have led to the address, at most LEDGER_NAMES of them. Why the first of them was
 * allowed is copied; without one that is untouched. */
void ledger_names(const struct ledger *ledger, const struct address *address, struct strv *names,
                  char ret_reason[REASON_SIZE]);

/* The other way round: the next address that the name has led to, from *index on. False: no more.
 */
bool ledger_next_address(const struct ledger *ledger, const char *name, uint32_t *index,
                         struct address *ret_address);

/* A connection is made, has carried so many bytes (up: to the outside), and ends; without a line if
 * there was none left. Without a ledger nothing is counted. */
void ledger_opened(struct ledger *ledger, struct ledger_line *line);
void ledger_carried(struct ledger *ledger, struct ledger_line *line, bool up, size_t bytes);
void ledger_closed(struct ledger *ledger, struct ledger_line *line);

/* {"connections": …, "hosts": [{"host": …, "port": …, "decision": …}]} */
json_t *ledger_to_json(const struct ledger *ledger);
