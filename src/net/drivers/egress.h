/* What a session with a plain IP stack may send, as a rule set for nft: the same decisions as the
 * relay takes on addresses (match.h, guard.h), in the same order: deny, what is listed, the guard,
 * the rest. Pure. What they decide does not depend on the state of connections, so what is decided
 * anew holds for the next packet; only what names have opened stays open to who uses it. */
#pragma once

#include "core/strv.h"
#include "net/drivers/own.h"
#include "net/match.h"

#define EGRESS_TABLE "sandbox" /* of the family inet */

/* Sets of addresses that a permitted name has led to, by family and class (classes.h). Elements
 * come by openings.h and go by time. */
#define EGRESS_NAMED "named%u_%u"
#define EGRESS_OPEN  4096 /* in one of them */

/* Where names that no rule knows are asked about, addresses are, too (knocks.h): what the answer
 * was, by family, each an address and a port of TCP; and the protocols of which we are told at all.
 */
#define EGRESS_WANTED    "wanted" /* and the family */
#define EGRESS_UNWANTED  "unwanted"
#define EGRESS_ASKS      "asks"
#define EGRESS_ANSWERS   1024   /* in one of them */
#define EGRESS_ANSWER_MS 150000 /* longer than TCP takes to send its first packet once more */

struct egress {
  const struct host_rules *rules;
  bool resolves, asks;                /* as in settings.h */
  bool tells;                         /* the kernel can tell of packets (sightings.h) */
  const struct address *name_servers; /* may be asked in mode full */
  size_t name_server_count;
};

/* Refuses rules about names that sets of addresses cannot keep. */
int egress_check(const struct host_rules *rules, bool asks, const char *driver,
                 struct sb_error *error);

/* The rule set for the session's network namespace, to be loaded once, together with the addresses
 * of this machine. New string. */
char *egress_rules(const struct egress *egress);

/* These networks are this machine's, and so guarded as in guard.h, from now on, with the IPv6
 * addresses that carry them; those of an earlier call are not. All else, such as what was counted,
 * stays as it is. New string. */
char *egress_own(const struct own_network *own, size_t count);

/* The host's end of a veth pair. */
struct egress_host {
  const char *table, *interface;
  const char *network;  /* of IPv4, of 30 bits */
  const char *network6; /* of 64 bits; NULL: no IPv6 */
};

/* For that end: translates what comes from those networks and goes elsewhere, keeps the session
 * from the host itself and everybody from the session. It belongs to the nft process that loads it,
 * and is gone with it. New string. */
char *egress_translation(const struct host_rules *rules, const struct egress_host *host);
