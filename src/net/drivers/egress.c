/* Rules for nft; see egress.h. */
#include "net/drivers/egress.h"

#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/text.h"
#include "net/drivers/classes.h"
#include "net/drivers/sightings.h"
#include "net/drivers/tallies.h"
#include "net/guard.h"

#define TABLE "inet " EGRESS_TABLE
#define MARK  "0x1" /* of a connection that a name has opened */
/* Neighbours of IPv6 are found by messages; without them there is no IPv6. Programs cannot send
 * them: that takes a raw socket. */
#define NEIGHBOURS                                                                                 \
  "\t\ticmpv6 type { nd-neighbor-solicit, nd-neighbor-advert, nd-router-solicit, "                 \
  "nd-router-advert } accept\n"

static bool all_ports(const struct host_rule *rule) {
  return rule->first_port == 1 && rule->last_port == 65535;
}

/* Where every address is open, a name can be kept from being found, but none of its ports closed.
 */
static int check_denied(const struct host_rules *rules, const char *driver,
                        struct sb_error *error) {
  bool open = rules->everything;
  for (size_t i = 0; i < rules->allow_count; i++)
    open |= rules->allow[i].kind == HOST_ANY;
  for (size_t i = 0; open && i < rules->deny_count; i++) {
    const struct host_rule *rule = &rules->deny[i];
    if ((rule->kind != HOST_EXACT && rule->kind != HOST_BELOW) || all_ports(rule))
      continue;
    sb_fail(error, SB_CODE_UNSUPPORTED, 0,
            "%s: network.driver %s gives a plain IP stack, which cannot close a port of a name "
            "where all addresses are allowed",
            rule->written, driver);
    return sb_hint(error, "deny the name without a port, or list what is allowed, or use "
                          "network.driver: auto");
  }
  return 0;
}

int egress_check(const struct host_rules *rules, bool asks, const char *driver,
                 struct sb_error *error) {
  struct port_classes classes;
  if (port_classes_new(rules, asks, &classes) == 0)
    return check_denied(rules, driver, error);
  sb_fail(error, SB_CODE_UNSUPPORTED, 0,
          "network.allow and network.deny: network.driver %s cannot tell so many different ranges "
          "of ports of names apart (there may be %d)",
          driver, PORT_CLASSES);
  return sb_hint(error, "use fewer ranges, or network.driver: auto");
}

/* ---- sets ---- */

static void append_network(struct text *text, const struct address *network, unsigned bits) {
  char shown[64];
  address_to_text(network, shown);
  text_appendf(text, "%s/%u", shown, bits);
}

static void append_element(struct text *elements, const struct address *network, unsigned bits) {
  text_append(elements, elements->length ? ", " : "");
  append_network(elements, network, bits);
}

/* What is guarded in one family, on every machine and on this one. */
static void append_guarded(struct text *text, uint8_t family) {
  _cleanup_text_ struct text elements = {0};
  struct address network;
  unsigned bits;
  for (size_t i = 0; guard_network(i, &network, &bits); i++) {
    if (network.family == family)
      append_element(&elements, &network, bits);
  }
  text_appendf(text,
               "\tset guarded%u {\n\t\ttype ipv%u_addr\n\t\tflags interval\n\t\tauto-merge\n"
               "\t\telements = { %s }\n\t}\n"
               "\tset own%u {\n\t\ttype ipv%u_addr\n\t\tflags interval\n\t}\n",
               family, family, text_string(&elements), family, family);
}

struct networks {
  struct own_network *items;
  size_t count;
};

static void add_network(struct networks *networks, const struct own_network *network) {
  ARRAY_GROW(networks->items, networks->count);
  networks->items[networks->count++] = *network;
}

/* And the forms of IPv6 that carry them. */
static struct networks with_carriers(const struct own_network *own, size_t count) {
  struct networks all = {0};
  for (size_t i = 0; i < count; i++) {
    struct own_network carrier;
    add_network(&all, &own[i]);
    for (size_t form = 0;
         own[i].address.family == 4 &&
         address_carrier(form, &own[i].address, own[i].bits, &carrier.address, &carrier.bits);
         form++)
      add_network(&all, &carrier);
  }
  return all;
}

/* The kernel takes no two elements that overlap. Of two that are the same the first stays. */
static bool is_within_another(const struct networks *all, size_t index) {
  const struct own_network *network = &all->items[index];
  for (size_t i = 0; i < all->count; i++) {
    const struct own_network *other = &all->items[i];
    bool wider = other->bits < network->bits || (other->bits == network->bits && i < index);
    if (wider && address_within(&network->address, &other->address, other->bits))
      return true;
  }
  return false;
}

static void append_own(struct text *text, const struct networks *all, uint8_t family) {
  _cleanup_text_ struct text elements = {0};
  for (size_t i = 0; i < all->count; i++) {
    if (all->items[i].address.family == family && !is_within_another(all, i))
      append_element(&elements, &all->items[i].address, all->items[i].bits);
  }
  text_appendf(text, "flush set " TABLE " own%u\n", family);
  if (elements.length > 0)
    text_appendf(text, "add element " TABLE " own%u { %s }\n", family, text_string(&elements));
}

char *egress_own(const struct own_network *own, size_t count) {
  struct text text = {0};
  struct networks all = with_carriers(own, count);
  append_own(&text, &all, 4);
  append_own(&text, &all, 6);
  free(all.items);
  return text_steal(&text);
}

/* ---- what names have led to ---- */

static void append_named_sets(struct text *text, const struct port_classes *classes) {
  for (unsigned i = 0; i < classes->count; i++) {
    for (unsigned family = 4; family <= 6; family += 2)
      text_appendf(text,
                   "\tset " EGRESS_NAMED
                   " {\n\t\ttype ipv%u_addr\n\t\tsize %d\n\t\tflags timeout\n\t}\n",
                   family, i, family, EGRESS_OPEN);
  }
}

/* A connection may last longer than the time for which an address is known to be a name's: who was
 * let through once, by these rules, goes on. */
static void append_named_rules(struct text *text, const struct port_classes *classes) {
  if (classes->count > 0)
    text_append(text, "\t\tct state established ct mark & " MARK " == " MARK " goto permit\n");
  for (unsigned i = 0; i < classes->count; i++) {
    const struct port_class *class = &classes->items[i];
    for (unsigned family = 4; family <= 6; family += 2) {
      text_appendf(text, "\t\t%s daddr @" EGRESS_NAMED " ", family == 6 ? "ip6" : "ip", family, i);
      if (class->first > 1 || class->last < UINT16_MAX)
        text_appendf(text, "meta l4proto { tcp, udp } th dport %u-%u ", class->first, class->last);
      text_append(text, "ct mark set ct mark | " MARK " goto permit\n");
    }
  }
}

/* ---- what somebody is asked about ---- */

static void append_answer_set(struct text *text, const char *name, unsigned family) {
  text_appendf(text,
               "\tset %s%u {\n\t\ttype ipv%u_addr . inet_service\n\t\tsize %d\n"
               "\t\tflags timeout\n\t}\n",
               name, family, family, EGRESS_ANSWERS);
}

static void append_answer_rule(struct text *text, const char *name, unsigned family,
                               const char *verdict) {
  text_appendf(text, "\t\t%s daddr . tcp dport @%s%u %s\n", family == 6 ? "ip6" : "ip", name,
               family, verdict);
}

/* What is dropped is sent again by TCP itself, until it is in one of the sets. */
static void append_ask_chain(struct text *text) {
  for (unsigned family = 4; family <= 6; family += 2) {
    append_answer_set(text, EGRESS_WANTED, family);
    append_answer_set(text, EGRESS_UNWANTED, family);
  }
  text_append(text, "\tset " EGRESS_ASKS " {\n\t\ttype inet_proto\n\t}\n\tchain ask {\n");
  for (unsigned family = 4; family <= 6; family += 2)
    append_answer_rule(text, EGRESS_UNWANTED, family, "goto refuse");
  text_appendf(text,
               "\t\tlimit rate 50/second burst 100 packets log prefix \"%s\" group %d snaplen %d "
               "queue-threshold 1\n\t\tdrop\n\t}\n",
               SIGHTING_UNKNOWN, SIGHTING_GROUP, SIGHTING_HEAD);
}

static void append_ask_rules(struct text *text) {
  for (unsigned family = 4; family <= 6; family += 2)
    append_answer_rule(text, EGRESS_WANTED, family, "ct mark set ct mark | " MARK " goto permit");
}

/* ---- rules ---- */

/* "ip daddr 10.0.0.0/8 meta l4proto { tcp, udp } th dport 80-90 " */
static void append_match(struct text *text, const struct host_rule *rule) {
  if (rule->kind == HOST_NETWORK && rule->bits > 0) {
    text_append(text, rule->network.family == 6 ? "ip6 daddr " : "ip daddr ");
    append_network(text, &rule->network, rule->bits);
    text_append_char(text, ' ');
  } else if (rule->kind == HOST_NETWORK) {
    text_appendf(text, "meta nfproto ipv%u ", rule->network.family);
  }
  if (!all_ports(rule))
    text_appendf(text, "meta l4proto { tcp, udp } th dport %u-%u ", rule->first_port,
                 rule->last_port);
}

/* Those of one kind: HOST_NETWORK or HOST_ANY. What is about a name matches no packet. */
static void append_rules(struct text *text, const struct host_rule *rules, size_t count, int kind,
                         const char *before, const char *verdict) {
  for (size_t i = 0; i < count; i++) {
    if ((int)rules[i].kind != kind)
      continue;
    text_appendf(text, "\t\t%s", before);
    append_match(text, &rules[i]);
    text_appendf(text, "%s\n", verdict);
  }
}

/* What denies an IPv4 address denies the IPv6 addresses that carry it. */
static void append_carriers_of_denied(struct text *text, const struct host_rules *rules) {
  for (size_t i = 0; i < rules->deny_count; i++) {
    const struct host_rule *denied = &rules->deny[i];
    struct host_rule carrier = *denied;
    bool carried = denied->kind == HOST_NETWORK && denied->network.family == 4;
    for (size_t form = 0; carried && address_carrier(form, &denied->network, denied->bits,
                                                     &carrier.network, &carrier.bits);
         form++)
      append_rules(text, &carrier, 1, HOST_NETWORK, "", "goto refuse");
  }
}

static void append_name_servers(struct text *text, const struct egress *egress) {
  for (size_t i = 0; i < egress->name_server_count; i++) {
    char shown[64];
    address_to_text(&egress->name_servers[i], shown);
    text_appendf(text, "\t\t%s daddr %s meta l4proto { tcp, udp } th dport 53 goto permit\n",
                 egress->name_servers[i].family == 6 ? "ip6" : "ip", shown);
  }
}

static void append_egress_chain(struct text *text, const struct egress *egress,
                                const struct port_classes *classes) {
  const struct host_rules *rules = egress->rules;
  text_append(text, "\tchain egress {\n"
                    "\t\ttype filter hook output priority filter; policy drop;\n"
                    "\t\toifname \"lo\" accept\n" NEIGHBOURS
                    /* the kernel's own, which nobody asked for: not to be counted */
                    "\t\ticmpv6 type { mld-listener-report, mld2-listener-report } drop\n"
                    "\t\tmeta l4proto != { tcp, udp, icmp, icmpv6 } goto refuse\n"
                    /* no packet may be for somebody else than its destination */
                    "\t\tip option lsrr exists goto refuse\n"
                    "\t\tip option ssrr exists goto refuse\n"
                    "\t\texthdr rt exists goto refuse\n");
  append_rules(text, rules->deny, rules->deny_count, HOST_NETWORK, "", "goto refuse");
  append_carriers_of_denied(text, rules);
  append_rules(text, rules->deny, rules->deny_count, HOST_ANY, "", "goto refuse");
  if (rules->everything)
    append_name_servers(text, egress);
  append_rules(text, rules->allow, rules->allow_count, HOST_NETWORK, "", "goto permit");
  text_append(text, "\t\tip daddr @guarded4 goto refuse\n"
                    "\t\tip6 daddr @guarded6 goto refuse\n"
                    "\t\tip daddr @own4 goto refuse\n"
                    "\t\tip6 daddr @own6 goto refuse\n");
  append_named_rules(text, classes);
  if (egress->asks && egress->tells)
    append_ask_rules(text);
  if (egress->resolves) /* who else answers knows nothing of them */
    text_append(text, "\t\tmeta l4proto { tcp, udp } th dport 53 goto refuse\n");
  append_rules(text, rules->allow, rules->allow_count, HOST_ANY, "", "goto permit");
  if (egress->asks && egress->tells)
    text_append(text, "\t\tmeta l4proto @" EGRESS_ASKS
                      " tcp flags & (fin | syn | rst | ack) == syn goto ask\n");
  text_appendf(text, "\t\tgoto %s\n\t}\n", rules->everything ? "permit" : "refuse");
}

char *egress_rules(const struct egress *egress) {
  struct text text = {0};
  struct port_classes classes = {0}; /* egress_check has seen that they can be had */
  (void)port_classes_new(egress->rules, egress->asks, &classes);
  text_append(&text, "table " TABLE " {\n");
  append_guarded(&text, 4);
  append_guarded(&text, 6);
  append_named_sets(&text, &classes);
  tallies_append(&text, egress->tells);
  if (egress->asks && egress->tells)
    append_ask_chain(&text);
  append_egress_chain(&text, egress, &classes);
  /* Nobody outside begins a connection: published ports come by loopback. */
  text_append(&text,
              "\tchain ingress {\n"
              "\t\ttype filter hook input priority filter; policy drop;\n"
              "\t\tiifname \"lo\" accept\n" NEIGHBOURS "\t\tct state established jump arrive\n"
              "\t\tct state established,related accept\n"
              "\t}\n}\n");
  return text_steal(&text);
}

static void append_host_chain(struct text *text, const struct host_rules *rules,
                              const char *interface) {
  _cleanup_free_ char *from = xasprintf("iifname \"%s\" ", interface);
  /* The egress rules knew the host's addresses when the session began; here they are what they are
   * now. */
  text_appendf(text,
               "\tchain host {\n\t\ttype filter hook input priority -10; policy accept;\n"
               "\t\t%sicmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } accept\n",
               from);
  append_rules(text, rules->allow, rules->allow_count, HOST_NETWORK, from, "accept");
  text_appendf(text, "\t\t%sreject with icmpx type admin-prohibited\n\t}\n", from);
}

char *egress_translation(const struct host_rules *rules, const struct egress_host *host) {
  struct text text = {0};
  const char *interface = host->interface;
  text_appendf(&text, "table inet %s {\n\tflags owner\n", host->table);
  append_host_chain(&text, rules, interface);
  text_appendf(&text,
               "\tchain through {\n\t\ttype filter hook forward priority -10; policy accept;\n"
               "\t\toifname \"%s\" ct state != { established, related } drop\n"
               "\t\tiifname \"%s\" ip saddr != %s/30 drop\n",
               interface, interface, host->network);
  if (host->network6)
    text_appendf(&text, "\t\tiifname \"%s\" ip6 saddr != %s/64 drop\n\t}\n", interface,
                 host->network6);
  else
    text_appendf(&text, "\t\tiifname \"%s\" meta nfproto ipv6 drop\n\t}\n", interface);
  text_appendf(&text,
               "\tchain out {\n\t\ttype nat hook postrouting priority srcnat; policy accept;\n"
               "\t\tip saddr %s/30 oifname != \"%s\" masquerade\n",
               host->network, interface);
  if (host->network6)
    text_appendf(&text, "\t\tip6 saddr %s/64 oifname != \"%s\" masquerade\n", host->network6,
                 interface);
  text_append(&text, "\t}\n}\n");
  return text_steal(&text);
}
