/* The guest's network, seen from outside: QEMU's user mode network, whose sockets are those of a
 * process in the session. They lead to the relay like all others there, so the guest reaches what
 * policy names and nothing else, by whatever packets. */
#include <stdlib.h>
#include <string.h>

#include "backend/vm.h"
#include "backend/vm/wire.h"
#include "core/alloc.h"
#include "core/cleanup.h"
#include "net/inside.h"
#include "net/publish.h"

enum { FIRST_FORWARD = 20000 }; /* below the ports that are given out at random */

bool vm_has_network(const struct plan *plan) {
  return plan->network.mode != NETWORK_NONE || plan->publish.count > 0;
}

void vm_publish(const struct strv *published, struct strv *ret_publish, struct strv *ret_forwards) {
  unsigned forward = FIRST_FORWARD;
  STRV_FOREACH (text, published) {
    struct published parsed;
    if (!publish_parse(*text, &parsed))
      continue; /* the policy's reader has refused it */
    strv_take(ret_publish, publish_text(&parsed, (uint16_t)forward));
    strv_addf(ret_forwards, "%u-%u", forward, (unsigned)parsed.inside);
    forward++;
  }
}

static char *replace(const char *text, const char *old, const char *new) {
  struct text made = {0};
  text_append(&made, "");
  for (const char *at; (at = strstr(text, old)); text = at + strlen(old)) {
    text_append_bytes(&made, text, (size_t)(at - text));
    text_append(&made, new);
  }
  text_append(&made, text);
  return text_steal(&made);
}

char *vm_translate(const char *text) {
  _cleanup_free_ char *inside = xasprintf("127.0.0.1:%d", RELAY_PORT);
  _cleanup_free_ char *gateway = xasprintf(VM_NET_GATEWAY ":%d", RELAY_PORT);
  _cleanup_free_ char *proxied = replace(text, inside, gateway);
  return replace(proxied, "nameserver " RESOLVER_ADDRESS, "nameserver " VM_NET_RESOLVER);
}

const char *vm_resolver_text(const struct plan *plan) {
  for (size_t i = 0; i < plan->operation_count; i++) {
    const struct operation *operation = &plan->operations[i];
    if (operation->kind == OPERATION_PRIVATE_FILE && operation->text &&
        strstr(operation->text, "nameserver " RESOLVER_ADDRESS))
      return operation->text;
  }
  return NULL;
}

bool vm_can_network(const char *qemu) {
  char *argv[] = {(char *)qemu, "-M", "none", "-netdev", "help", NULL};
  _cleanup_free_ char *output = NULL;
  return tool_ask(argv, 10, &output) == 0 && strstr(output, "\nuser\n");
}
