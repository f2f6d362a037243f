/* The network of a session: rules for the relay, the resolver's configuration, the variables that
 * tell programs of the proxies. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/escape.h"
#include "core/file.h"
#include "core/path.h"
#include "core/text.h"
#include "net/drivers/classes.h"
#include "net/drivers/egress.h"
#include "net/drivers/six.h"
#include "net/inside.h"
#include "plan/compile.h"

#define RESOLVER_FILE       "/etc/resolv.conf"
#define RESOLVER_FILE_LIMIT 65536
#define HOSTS_FILE          "/etc/hosts"
#define HOSTS_FILE_LIMIT    65536 /* a list of hosts that nobody shall reach is left as it is */

/* Short names and how they are completed stay as they are outside. */
static bool is_kept_line(const char *line) {
  static const char *const kept[] = {"search", "domain", "options"};
  for (size_t i = 0; i < ARRAY_SIZE(kept); i++) {
    size_t length = strlen(kept[i]);
    if (strncmp(line, kept[i], length) == 0 && (line[length] == ' ' || line[length] == '\t'))
      return true;
  }
  return false;
}

static void append_name_servers(struct text *text, const struct network_settings *network) {
  if (!network->driver || network->resolves)
    text_append(text,
                "# made by sandbox: its own resolver answers\nnameserver " RESOLVER_ADDRESS "\n");
  for (size_t i = 0; i < network->name_server_count; i++) {
    char shown[64];
    address_to_text(&network->name_servers[i], shown);
    text_appendf(text, "nameserver %s\n", shown);
  }
}

/* A person who is asked about a name takes longer than a name server does. As long as the C library
 * lets one wait; our resolver itself always answers. The last line holds. */
static void append_patience(struct text *text, const struct network_settings *network) {
  if (network->driver && network->resolves && network->may_ask)
    text_append(text, "options timeout:30 attempts:5\n");
}

static char *resolver_text(const struct network_settings *network) {
  struct text text = {0};
  _cleanup_free_ char *outside = NULL;
  append_name_servers(&text, network);
  if (file_read_at(AT_FDCWD, RESOLVER_FILE, RESOLVER_FILE_LIMIT, &outside, NULL) < 0)
    outside = xstrdup("");
  char *rest = NULL;
  for (char *line = strtok_r(outside, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
    if (is_kept_line(line))
      text_appendf(&text, "%s\n", line);
  }
  append_patience(&text, network);
  return text_steal(&text);
}

/* Where there is no such file none is needed: programs then ask loopback, and that is answered,
 * too. */
static void plan_resolver(struct compiler *compiler) {
  struct plan *plan = compiler->plan;
  const char *source, *place;
  _cleanup_free_ char *path = compile_resolve(RESOLVER_FILE);
  if (!path)
    return;
  if (compile_private_place(path, &source, &place)) { /* a link into /run */
    compile_mount_point(compiler, path, false);
    plan->operations[plan->operation_count - 1].text = resolver_text(&plan->network);
    return;
  }
  compile_private_object(compiler, "resolv.conf", false, 0644);
  plan->operations[plan->operation_count - 1].text = resolver_text(&plan->network);
  plan_add(plan, OPERATION_PRIVATE_SEALED, path, "resolv.conf", "names are resolved by the %s",
           plan->network.driver && !plan->network.resolves ? "network driver's name servers"
                                                           : "relay");
}

/* The session has a name of its own, and programs expect to find an address by it (Java's
 * getLocalHost, everything that is distributed). With a network the relay tells it. */
static void plan_own_name(struct compiler *compiler) {
  struct plan *plan = compiler->plan;
  const char *source, *place;
  _cleanup_free_ char *path = compile_resolve(HOSTS_FILE), *outside = NULL;
  if (!path || compile_private_place(path, &source, &place) ||
      policy_decide(compiler->policy, path, ACCESS_READ).verdict == VERDICT_HIDE ||
      file_read_at(AT_FDCWD, path, HOSTS_FILE_LIMIT, &outside, NULL) < 0)
    return;
  compile_private_object(compiler, "hosts", false, 0644);
  plan->operations[plan->operation_count - 1].text =
      xasprintf("%s\n127.0.1.1 %s\n", outside, plan->hostname);
  plan_add(plan, OPERATION_PRIVATE_SEALED, path, "hosts", "and the session's own name");
}

static int plan_upstream(struct compiler *compiler, struct sb_error *error) {
  const struct policy *policy = compiler->policy;
  bool socks = policy->network.socks_proxy != NULL;
  const char *written = socks ? policy->network.socks_proxy : policy->network.http_proxy;
  if (!written)
    return 0;
  const char *problem = upstream_parse(written, socks, &compiler->plan->network.upstream);
  if (!problem)
    return 0;
  _cleanup_free_ char *shown = escape_string(written);
  sb_fail(error, SB_CODE_POLICY, 0, "network.%s: '%s' %s", socks ? "socks_proxy" : "http_proxy",
          shown, problem);
  return sb_hint(error, "write HOST:PORT");
}

/* A socket that is bound in is a door to whoever listens there. Through these it is a wide one. By
 * the end of the path. */
static const struct {
  const char *end, *warning;
} wide_doors[] = {
    {"/docker.sock", "whoever can talk to Docker has the whole machine"},
    {"/containerd.sock", "whoever can talk to containerd has the whole machine"},
    {"/podman.sock", "whoever can talk to Podman can run anything with your rights"},
    {"/bus", "whoever can talk to your session bus can run anything with your rights"},
    {"/system_bus_socket", "services on the system bus do things for whoever asks"},
    {"/daemon-socket/socket",
     "the daemon of Nix builds outside of the sandbox, and what it fetches "
     "comes over the network of the machine"},
};

static int refuse_socket(const char *path, int errnum, const char *problem, const char *hint,
                         struct sb_error *error) {
  _cleanup_free_ char *shown = escape_string(path);
  sb_fail(error, SB_CODE_POLICY, errnum, "network.unix_sockets: '%s'%s", shown, problem);
  return sb_hint(error, "%s", hint);
}

/* Nobody there learns of it. A stream's server is of another kind; one for datagrams may well take
 * only those of its own client's. */
static bool takes_datagrams(const char *path) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  _cleanup_close_ int client = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (client < 0 || strlen(path) >= sizeof address.sun_path)
    return false;
  strcpy(address.sun_path, path);
  return connect(client, (const struct sockaddr *)&address, sizeof address) == 0 ||
         (errno != EPROTOTYPE && errno != ECONNREFUSED);
}

/* The places made it visible, as a readable object; connect(2) needs no more. */
static int check_socket(struct compiler *compiler, const char *path, struct sb_error *error) {
  _cleanup_free_ char *object = compile_resolve(path);
  struct stat status;
  if (!object || stat(object, &status) < 0)
    return refuse_socket(path, errno, "", "start what listens there, or leave it out", error);
  if (!S_ISSOCK(status.st_mode))
    return refuse_socket(path, 0, " is no socket", "name the socket itself", error);
  if (path_is_under(object, compiler->host->runtime_folder))
    return refuse_socket(path, 0, " commands a sandbox", "leave it out: it cannot be shared",
                         error);
  if (compiler->plan->guards_sockets && !compiler->plan->unix_datagrams && takes_datagrams(object))
    return refuse_socket(path, 0, " takes datagrams, and static mode makes no socket for them",
                         "set network.unix_datagrams: true, or use dynamic mode", error);
  if (policy_decide(compiler->policy, object, ACCESS_READ).verdict != VERDICT_ALLOW)
    return refuse_socket(path, 0, " is hidden by a rule that is final",
                         "see 'sandbox policy explain' for it", error);
  for (size_t i = 0; i < ARRAY_SIZE(wide_doors); i++) {
    if (path_ends_with(object, wide_doors[i].end))
      strv_addf(&compiler->plan->warnings, "network.unix_sockets: %s", wide_doors[i].warning);
  }
  struct plan *plan = compiler->plan;
  ARRAY_GROW(plan->sockets, plan->socket_count);
  bool movable = compile_covered(&compiler->writable, object);
  plan->sockets[plan->socket_count++] = (struct plan_socket){.path = steal_pointer(object),
                                                             .device = status.st_dev,
                                                             .inode = status.st_ino,
                                                             .movable = movable};
  return 0;
}

/* ---- drivers ---- */

/* The upstream servers of a resolver that listens on the host's loopback, where a driver does not
 * lead. */
#define UPSTREAM_FILE "/run/systemd/resolve/resolv.conf"

static void read_name_servers(const char *path, struct network_settings *network) {
  _cleanup_free_ char *outside = NULL;
  if (file_read_at(AT_FDCWD, path, RESOLVER_FILE_LIMIT, &outside, NULL) < 0)
    return;
  char *rest = NULL;
  for (char *line = strtok_r(outside, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
    char word[64];
    struct address address;
    static const struct address loopback = {.family = 4, .bytes = {127}};
    static const struct address loopback6 = {.family = 6, .bytes = {[15] = 1}};
    if (network->name_server_count < NAME_SERVERS &&
        sscanf(line, "nameserver %63s", word) == 1 && /* an address with a scope is none */
        address_parse(word, strlen(word), &address) && !address_within(&address, &loopback, 8) &&
        !address_equal(&address, &loopback6))
      network->name_servers[network->name_server_count++] = address;
  }
}

static void find_name_servers(struct network_settings *network) {
  const char *offered = network->driver->resolver;
  if (offered) {
    network->name_server_count =
        address_parse(offered, strlen(offered), &network->name_servers[0]) ? 1 : 0;
    return;
  }
  read_name_servers(RESOLVER_FILE, network);
  if (network->name_server_count == 0)
    read_name_servers(UPSTREAM_FILE, network);
}

/* Whoever lists a name server wants programs to ask that one. */
static bool is_name_server_listed(const struct network_settings *network) {
  for (size_t i = 0; i < network->name_server_count; i++) {
    if (host_rules_list_address(network->rules, &network->name_servers[i], 53))
      return true;
  }
  return false;
}

/* Who answers: we, if names are to be judged, or the driver's name servers. */
static void choose_resolver(struct compiler *compiler) {
  struct network_settings *network = &compiler->plan->network;
  find_name_servers(network);
  network->resolves = host_rules_have_names(network->rules) ||
                      (network->may_ask && !is_name_server_listed(network));
  if (network->resolves)
    network->name_server_count = 0;
  else if (network->name_server_count == 0)
    strv_addf(&compiler->plan->warnings,
              "network.driver %s: the name server is on the host's loopback, where the driver does "
              "not lead: names are not found inside. network.driver: slirp4netns or auto ask it",
              network->driver->name);
}

static int plan_driver(struct compiler *compiler, struct sb_error *error) {
  struct network_settings *network = &compiler->plan->network;
  if (network->upstream.kind != UPSTREAM_NONE) {
    sb_fail(error, SB_CODE_UNSUPPORTED, 0,
            "network.driver %s gives a plain IP stack, which no upstream proxy can be put before",
            network->driver->name);
    return sb_hint(error, "remove http_proxy and socks_proxy, or use network.driver: auto");
  }
  if (egress_check(network->rules, network->may_ask, network->driver->name, error) < 0 ||
      net_driver_check(network->driver, error) < 0 ||
      six_check(network->driver, network->rules, error) < 0)
    return -1;
  const char *lacking = net_driver_lacks(network->driver);
  if (lacking)
    strv_addf(&compiler->plan->warnings, "network.driver %s: %s", network->driver->name, lacking);
  choose_resolver(compiler);
  strv_addf(&compiler->plan->notes, "network: a plain IP stack by %s, filtered by %s",
            network->driver->name,
            network->resolves ? "address and by what names lead to" : "address");
  plan_resolver(compiler);
  return 0;
}

int compile_network(struct compiler *compiler, struct sb_error *error) {
  const struct policy *policy = compiler->policy;
  STRV_FOREACH (path, &policy->network.unix_sockets) {
    if (check_socket(compiler, *path, error) < 0)
      return -1;
  }
  struct network_settings *network = &compiler->plan->network;
  if (network->mode == NETWORK_NONE) {
    if (!compiler->request->for_backend)
      plan_own_name(compiler);
    return 0;
  }
  if (host_rules_new(&policy->network.allow, &policy->network.deny, network->mode == NETWORK_FULL,
                     &network->rules, error) < 0 ||
      plan_upstream(compiler, error) < 0)
    return -1;
  network->may_ask = policy->mode == MODE_DYNAMIC && network->mode == NETWORK_FILTERED;
  if (network->driver)
    return plan_driver(compiler, error);
  plan_resolver(compiler);
  return 0;
}

#define TEXT_OF(number)  #number
#define NUMBER(constant) TEXT_OF(constant)
#define PROXY            "127.0.0.1:" NUMBER(RELAY_PORT)

static const struct {
  const char *name, *value;
} proxy_variables[] = {
    {"HTTP_PROXY", "http://" PROXY},         {"http_proxy", "http://" PROXY},
    {"HTTPS_PROXY", "http://" PROXY},        {"https_proxy", "http://" PROXY},
    {"ALL_PROXY", "socks5://" PROXY},        {"all_proxy", "socks5://" PROXY},
    {"NO_PROXY", "localhost,127.0.0.1,::1"}, {"no_proxy", "localhost,127.0.0.1,::1"},
};

void compile_proxy_variables(struct compiler *compiler) {
  if (compiler->plan->network.mode == NETWORK_NONE || compiler->plan->network.driver)
    return;
  for (size_t i = 0; i < ARRAY_SIZE(proxy_variables); i++)
    plan_set_variable(&compiler->plan->environment, proxy_variables[i].name,
                      proxy_variables[i].value);
}
