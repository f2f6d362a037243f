/* What a session with a plain IP stack may send, as a rule set for nft: the same decisions as the
 * relay takes on addresses (match.h, guard.h), in the same order: deny, what is listed, the guard,
 * the rest. Pure. The rules do not depend on any state of connections: what is decided anew holds
 * for the next packet. */
#pragma once

#include "core/strv.h"
#include "net/match.h"

#define EGRESS_TABLE   "sandbox" /* of the family inet */
#define EGRESS_COUNTER "refused"

struct egress {
  const struct host_rules *rules; /* without rules about names, see egress_check */
  const struct address *own;      /* of this machine: guarded as in guard.h */
  size_t own_count;
  const struct address *name_servers; /* may be asked in mode full */
  size_t name_server_count;
};

/* A plain IP stack knows no names: a rule about them cannot be kept, and is refused. */
int egress_check(const struct host_rules *rules, const char *driver, struct sb_error *error);

/* The rule set for the session's network namespace; replaces an earlier one at once. New string. */
char *egress_rules(const struct egress *egress);

/* For the host's end of a veth pair: translates what comes from `network` and goes elsewhere, keeps
 * the session from the host itself and everybody from the session. It belongs to the nft process
 * that loads it, and is gone with it. New string. */
char *egress_translation(const struct host_rules *rules, const char *table, const char *interface,
                         const char *network);
