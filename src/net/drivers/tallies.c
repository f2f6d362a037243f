/* Sets that count; see tallies.h. */
#include "net/drivers/tallies.h"

#include <stdio.h>

#include "core/cleanup.h"
#include "net/drivers/sightings.h"

static const char *const names[] = {
    [TALLY_REFUSED] = "refused", [TALLY_PEERS] = "peers",       [TALLY_OPENED] = "opened",
    [TALLY_SENT] = "sent",       [TALLY_RECEIVED] = "received",
};

void tally_set_name(const struct tally_set *set, char ret_name[TALLY_NAME_SIZE]) {
  snprintf(ret_name, TALLY_NAME_SIZE, "%s%u%s", names[set->tally], set->family,
           set->portless ? "p" : "");
}

/* Calls for the four sets of a tally. */
static void for_each(struct text *text, enum tally tally,
                     void (*append)(struct text *text, const struct tally_set *set)) {
  for (uint8_t family = 4; family <= 6; family += 2) {
    append(text, &(struct tally_set){tally, family, false});
    append(text, &(struct tally_set){tally, family, true});
  }
}

static void append_set(struct text *text, const struct tally_set *set) {
  char name[TALLY_NAME_SIZE];
  tally_set_name(set, name);
  text_appendf(
      text, "\tset %s {\n\t\ttype ipv%u_addr . inet_proto%s\n\t\tsize %d\n\t\tflags dynamic\n\t}\n",
      name, set->family, set->portless ? "" : " . inet_service",
      set->portless ? TALLY_PORTLESS : TALLY_LISTED);
}

/* "ip daddr . meta l4proto . th dport": the other side. */
static void append_key(struct text *text, const struct tally_set *set) {
  char side = set->tally == TALLY_RECEIVED ? 's' : 'd';
  text_appendf(text, "%s %caddr . meta l4proto", set->family == 6 ? "ip6" : "ip", side);
  if (!set->portless)
    text_appendf(text, " . th %cport", side);
}

/* A set that is full ends its own rule only. */
static void append_rule(struct text *text, const struct tally_set *set) {
  char name[TALLY_NAME_SIZE];
  text_appendf(text, "\t\tmeta nfproto ipv%u meta l4proto %s{ tcp, udp } ", set->family,
               set->portless ? "!= " : "");
  if (set->tally == TALLY_RECEIVED) {
    append_key(text, set);
    tally_set_name(&(struct tally_set){TALLY_PEERS, set->family, set->portless}, name);
    text_appendf(text, " @%s ", name);
  }
  tally_set_name(set, name);
  text_appendf(text, "add @%s { ", name);
  append_key(text, set);
  text_append(text, set->tally == TALLY_PEERS ? " }\n" : " counter }\n");
}

/* When the set is full, all of them are new; so many are told of, the others are counted. */
static void append_sighting(struct text *text, const struct tally_set *set) {
  char name[TALLY_NAME_SIZE];
  if (set->portless)
    return;
  tally_set_name(set, name);
  text_appendf(text, "\t\tmeta nfproto ipv%u meta l4proto { tcp, udp } ", set->family);
  append_key(text, set);
  text_appendf(
      text,
      " != @%s limit rate 50/second burst 300 packets log prefix \"%s\" group %d snaplen %d "
      "queue-threshold 1\n",
      name, SIGHTING_OPENED, SIGHTING_GROUP, SIGHTING_HEAD);
}

void tallies_append(struct text *text, bool tells) {
  for (size_t i = 0; i < ARRAY_SIZE(names); i++)
    for_each(text, (enum tally)i, append_set);
  text_append(text,
              "\tcounter " TALLY_REFUSED_ALL " {\n\t}\n\tcounter " TALLY_OPENED_ALL " {\n\t}\n"
              "\tchain refuse {\n\t\tcounter name " TALLY_REFUSED_ALL "\n");
  for_each(text, TALLY_REFUSED, append_rule);
  text_append(text, "\t\tmeta l4proto tcp reject with tcp reset\n"
                    "\t\treject with icmpx type admin-prohibited\n"
                    "\t}\n\tchain begin {\n\t\tcounter name " TALLY_OPENED_ALL "\n"
                    "\t\tct mark set ct mark | " TALLY_MARK "\n");
  if (tells)
    for_each(text, TALLY_PEERS, append_sighting);
  for_each(text, TALLY_PEERS, append_rule);
  for_each(text, TALLY_OPENED, append_rule);
  text_append(text, "\t}\n\tchain permit {\n\t\tct mark & " TALLY_MARK " == 0x0 jump begin\n");
  for_each(text, TALLY_SENT, append_rule);
  text_append(text, "\t\taccept\n\t}\n\tchain arrive {\n");
  for_each(text, TALLY_RECEIVED, append_rule);
  text_append(text, "\t}\n");
}
