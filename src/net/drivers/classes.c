/* Classes of ports; see classes.h. */
#include "net/drivers/classes.h"

#include <string.h>

#include "core/cleanup.h"

#define ALL ((struct port_class){1, UINT16_MAX})

static bool is_about_name(const struct host_rule *rule) {
  return rule->kind == HOST_EXACT || rule->kind == HOST_BELOW;
}

bool host_rules_have_names(const struct host_rules *rules) {
  for (size_t i = 0; i < rules->allow_count; i++) {
    if (is_about_name(&rules->allow[i]))
      return true;
  }
  for (size_t i = 0; i < rules->deny_count; i++) {
    if (is_about_name(&rules->deny[i]))
      return true;
  }
  return false;
}

/* ---- ranges ---- */

static bool add_start(struct port_classes *classes, unsigned port) {
  size_t at = 0;
  while (at < classes->start_count && classes->starts[at] < port)
    at++;
  if (port > UINT16_MAX || (at < classes->start_count && classes->starts[at] == port))
    return true;
  if (classes->start_count == ARRAY_SIZE(classes->starts))
    return false;
  memmove(classes->starts + at + 1, classes->starts + at,
          (classes->start_count - at) * sizeof classes->starts[0]);
  classes->starts[at] = (uint16_t)port;
  classes->start_count++;
  return true;
}

static bool add_starts(struct port_classes *classes, const struct host_rule *rules, size_t count) {
  for (size_t i = 0; i < count; i++) {
    if (is_about_name(&rules[i]) && (!add_start(classes, rules[i].first_port) ||
                                     !add_start(classes, (unsigned)rules[i].last_port + 1)))
      return false;
  }
  return true;
}

static struct port_class range_at(const struct port_classes *classes, size_t index) {
  bool last = index + 1 == classes->start_count;
  return (struct port_class){classes->starts[index],
                             last ? (uint16_t)UINT16_MAX
                                  : (uint16_t)(classes->starts[index + 1] - 1)};
}

static bool covers(const struct host_rule *rule, struct port_class range) {
  return is_about_name(rule) && rule->first_port <= range.first && rule->last_port >= range.last;
}

/* ---- classes ---- */

static bool add_class(struct port_classes *classes, const struct host_rules *rules, bool wanted,
                      struct port_class range) {
  for (size_t i = 0; i < rules->allow_count; i++)
    wanted |= covers(&rules->allow[i], range);
  if (wanted && classes->count == PORT_CLASSES)
    return false;
  if (wanted)
    classes->items[classes->count++] = range;
  return true;
}

int port_classes_new(const struct host_rules *rules, bool asks, struct port_classes *ret_classes) {
  struct port_classes classes = {.start_count = 1, .starts = {1}};
  if (!add_starts(&classes, rules->allow, rules->allow_count) ||
      !add_starts(&classes, rules->deny, rules->deny_count) ||
      !add_class(&classes, rules, asks, ALL))
    return -1;
  for (size_t i = 0; classes.start_count > 1 && i < classes.start_count; i++) {
    if (!add_class(&classes, rules, asks, range_at(&classes, i)))
      return -1;
  }
  *ret_classes = classes;
  return 0;
}

static bool is_covered(const struct host_rule *rules, size_t count, const char *name,
                       struct port_class range) {
  for (size_t i = 0; i < count; i++) {
    if (covers(&rules[i], range) && host_rule_covers_name(&rules[i], name))
      return true;
  }
  return false;
}

static uint32_t bit_of(const struct port_classes *classes, struct port_class range) {
  for (size_t i = 0; i < classes->count; i++) {
    if (classes->items[i].first == range.first && classes->items[i].last == range.last)
      return UINT32_C(1) << i;
  }
  return 0;
}

uint32_t port_classes_of(const struct port_classes *classes, const struct host_rules *rules,
                         const char *name, bool approved) {
  uint32_t some = 0;
  bool all = true;
  for (size_t i = 0; i < classes->start_count; i++) {
    struct port_class range = range_at(classes, i);
    bool allowed = (approved || is_covered(rules->allow, rules->allow_count, name, range)) &&
                   !is_covered(rules->deny, rules->deny_count, name, range);
    some |= allowed ? bit_of(classes, range) : 0;
    all &= allowed;
  }
  /* By several rules that together have all ports it is not the same: those have ports. */
  bool whole = all && (approved || is_covered(rules->allow, rules->allow_count, name, ALL));
  return whole ? bit_of(classes, ALL) : some;
}
