/* Names to addresses; see resolve.h. */
#include "net/resolve.h"

#include <ares.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/stat.h>

#include "core/alloc.h"
#include "core/strv.h"

#define REMEMBER_MS   3000 /* an answer is used again; the guard looks at it each time */
#define REMEMBERED    64
#define WATCHED       64
#define ASK_MS        2500
#define ASK_TRIES     2
#define LOOK_AGAIN_MS 2000 /* at resolv.conf: a notebook changes networks */

struct waiting {
  struct waiting *next;
  resolve_callback *callback;
  void *context;
};

/* One name that is being asked for; everybody who wants it waits here. */
struct question {
  struct question *next;
  struct resolver *resolver;
  char name[HOST_NAME_SIZE];
  struct waiting *waiting;
};

struct remembered {
  char name[HOST_NAME_SIZE];
  uint64_t until_ms;
  struct resolved resolved;
};

struct resolver_watch {
  struct watch watch;
  struct resolver *resolver;
};

struct resolver {
  struct loop *loop;
  ares_channel channel;
  ares_channel retired; /* of the configuration before, until nobody is at work in it; or NULL */
  struct stat configuration;
  struct strv domains; /* of `search` */
  uint64_t next_look_ms;
  struct question *questions;
  struct remembered remembered[REMEMBERED];
  unsigned next_remembered;
  struct resolver_watch watches[WATCHED];
};

/* ---- sockets of the library ---- */

static void on_ready(struct watch *watch, uint32_t events) {
  struct resolver_watch *ours = (struct resolver_watch *)watch;
  ares_socket_t fd = watch->fd;
  bool read = events & (EPOLLIN | EPOLLHUP | EPOLLERR), write = events & EPOLLOUT;
  ares_process_fd(ours->resolver->channel, read ? fd : ARES_SOCKET_BAD,
                  write ? fd : ARES_SOCKET_BAD);
}

static struct resolver_watch *find_watch(struct resolver *resolver, int fd) {
  for (size_t i = 0; i < WATCHED; i++) {
    if (resolver->watches[i].watch.fd == fd)
      return &resolver->watches[i];
  }
  return NULL;
}

static void on_socket(void *context, ares_socket_t fd, int readable, int writable) {
  struct resolver *resolver = context;
  struct resolver_watch *found = find_watch(resolver, fd);
  uint32_t events = (readable ? EPOLLIN : 0u) | (writable ? EPOLLOUT : 0u);
  if (!events) {
    if (found)
      loop_forget(resolver->loop, &found->watch);
    return;
  }
  if (found) {
    (void)loop_change_level(resolver->loop, &found->watch, events);
    return;
  }
  found = find_watch(resolver, -1);
  if (!found)
    return; /* too many at once: the library's own timeout ends the question */
  *found = (struct resolver_watch){{.fd = fd, .ready = on_ready}, resolver};
  if (loop_add_level(resolver->loop, &found->watch, events) < 0)
    found->watch.fd = -1;
}

/* ---- configuration ---- */

static void read_domains(struct resolver *resolver) {
  struct ares_options options = {0};
  int mask = 0;
  strv_clear(&resolver->domains);
  if (ares_save_options(resolver->channel, &options, &mask) == ARES_SUCCESS) {
    for (int i = 0; i < options.ndomains; i++)
      strv_add(&resolver->domains, options.domains[i]);
  }
  ares_destroy_options(&options);
}

bool resolver_completes(const struct resolver *resolver, const char *stem, const char *name) {
  size_t length = strlen(stem);
  if (strncmp(name, stem, length) != 0 || name[length] != '.')
    return false;
  STRV_FOREACH (domain, &resolver->domains) {
    if (strcasecmp(name + length + 1, *domain) == 0)
      return true;
  }
  return false;
}

static int open_channel(struct resolver *resolver) {
  char lookups[] = "fb"; /* files, then the name servers */
  struct ares_options options = {
      .flags = ARES_FLAG_NOSEARCH | ARES_FLAG_EDNS,
      .timeout = ASK_MS,
      .tries = ASK_TRIES,
      .lookups = lookups,
      .sock_state_cb = on_socket,
      .sock_state_cb_data = resolver,
  };
  int mask = ARES_OPT_FLAGS | ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES | ARES_OPT_LOOKUPS |
             ARES_OPT_SOCK_STATE_CB;
  if (ares_init_options(&resolver->channel, &options, mask) != ARES_SUCCESS)
    return -1;
  read_domains(resolver);
  return 0;
}

struct resolver *resolver_new(struct loop *loop) {
  struct resolver *resolver = xcalloc(1, sizeof *resolver);
  resolver->loop = loop;
  for (size_t i = 0; i < WATCHED; i++)
    resolver->watches[i].watch.fd = -1;
  (void)stat("/etc/resolv.conf", &resolver->configuration);
  if (ares_library_init(ARES_LIB_INIT_ALL) != ARES_SUCCESS || open_channel(resolver) < 0) {
    free(resolver);
    return NULL;
  }
  return resolver;
}

static bool same_file(const struct stat *a, const struct stat *b) {
  return a->st_dev == b->st_dev && a->st_ino == b->st_ino &&
         a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

/* Who asks may be called back by the library this very moment: its channel must outlive that. */
static void look_at_configuration(struct resolver *resolver) {
  uint64_t now = loop_now_ms();
  struct stat current = {0};
  if (now < resolver->next_look_ms || resolver->retired)
    return;
  resolver->next_look_ms = now + LOOK_AGAIN_MS;
  if (stat("/etc/resolv.conf", &current) < 0 || same_file(&current, &resolver->configuration))
    return;
  resolver->configuration = current;
  ares_channel old = resolver->channel;
  if (open_channel(resolver) == 0)
    resolver->retired = old;
  else
    resolver->channel = old;
}

/* Questions that are on their way to the old servers end with an error. */
static void destroy_retired(struct resolver *resolver) {
  ares_channel old = resolver->retired;
  resolver->retired = NULL;
  if (old)
    ares_destroy(old);
}

/* ---- answers ---- */

static void remember(struct resolver *resolver, const char *name, const struct resolved *resolved) {
  struct remembered *place = &resolver->remembered[resolver->next_remembered++ % REMEMBERED];
  strcpy(place->name, name);
  place->until_ms = loop_now_ms() + REMEMBER_MS;
  place->resolved = *resolved;
}

static const struct resolved *recall(const struct resolver *resolver, const char *name) {
  uint64_t now = loop_now_ms();
  for (size_t i = 0; i < REMEMBERED; i++) {
    const struct remembered *place = &resolver->remembered[i];
    if (place->until_ms > now && strcmp(place->name, name) == 0)
      return &place->resolved;
  }
  return NULL;
}

static void unlink_question(struct question *question) {
  struct question **link = &question->resolver->questions;
  while (*link != question)
    link = &(*link)->next;
  *link = question->next;
}

static void collect(const struct ares_addrinfo *info, struct resolved *resolved) {
  for (const struct ares_addrinfo_node *node = info->nodes; node; node = node->ai_next) {
    struct sockaddr_storage storage = {0};
    if (resolved->count == RESOLVE_LIMIT || (size_t)node->ai_addrlen > sizeof storage)
      continue;
    memcpy(&storage, node->ai_addr, (size_t)node->ai_addrlen);
    uint16_t ignored;
    resolved->addresses[resolved->count++] = address_from_sockaddr(&storage, &ignored);
    if (node->ai_ttl > 0 && (resolved->ttl == 0 || (uint32_t)node->ai_ttl < resolved->ttl))
      resolved->ttl = (uint32_t)node->ai_ttl;
  }
}

static enum resolve_status status_of(int result) {
  switch (result) {
  case ARES_SUCCESS:
    return RESOLVE_OK;
  case ARES_ENODATA:
    return RESOLVE_NO_ADDRESS;
  case ARES_ENOTFOUND:
  case ARES_EBADNAME:
    return RESOLVE_NO_SUCH_NAME;
  default:
    return RESOLVE_FAILED;
  }
}

static void on_answer(void *context, int result, int timeouts, struct ares_addrinfo *info) {
  (void)timeouts;
  struct question *question = context;
  struct resolved resolved = {.status = status_of(result)};
  if (info)
    collect(info, &resolved);
  ares_freeaddrinfo(info);
  if (resolved.status == RESOLVE_OK && resolved.count == 0)
    resolved.status = RESOLVE_NO_ADDRESS;
  unlink_question(question);
  if (resolved.status != RESOLVE_FAILED)
    remember(question->resolver, question->name, &resolved);
  while (question->waiting) {
    struct waiting *first = question->waiting;
    question->waiting = first->next;
    first->callback(first->context, &resolved);
    free(first);
  }
  free(question);
}

static struct question *find_question(struct resolver *resolver, const char *name) {
  struct question *question = resolver->questions;
  while (question && strcmp(question->name, name) != 0)
    question = question->next;
  return question;
}

void resolver_ask(struct resolver *resolver, const char *name, resolve_callback *callback,
                  void *context) {
  const struct resolved *known = recall(resolver, name);
  if (known) {
    struct resolved copy = *known;
    callback(context, &copy);
    return;
  }
  look_at_configuration(resolver);
  struct question *question = find_question(resolver, name);
  bool is_new = !question;
  if (is_new) {
    question = xcalloc(1, sizeof *question);
    *question = (struct question){.next = resolver->questions, .resolver = resolver};
    strcpy(question->name, name);
    resolver->questions = question;
  }
  struct waiting *waiting = xmalloc(sizeof *waiting);
  *waiting = (struct waiting){question->waiting, callback, context};
  question->waiting = waiting;
  struct ares_addrinfo_hints hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
  if (is_new)
    ares_getaddrinfo(resolver->channel, question->name, NULL, &hints, on_answer, question);
}

void resolver_withdraw(struct resolver *resolver, void *context) {
  for (struct question *question = resolver->questions; question; question = question->next) {
    for (struct waiting **link = &question->waiting; *link;) {
      struct waiting *waiting = *link;
      if (waiting->context != context) {
        link = &waiting->next;
        continue;
      }
      *link = waiting->next;
      free(waiting);
    }
  }
}

int resolver_timeout(struct resolver *resolver) {
  struct timeval most = {.tv_sec = 60}, wait;
  if (resolver->retired)
    return 0;
  if (!resolver->questions || !ares_timeout(resolver->channel, &most, &wait))
    return -1;
  return (int)(wait.tv_sec * 1000 + wait.tv_usec / 1000 + 1);
}

void resolver_tick(struct resolver *resolver) {
  if (resolver->questions)
    ares_process_fd(resolver->channel, ARES_SOCKET_BAD, ARES_SOCKET_BAD);
  destroy_retired(resolver);
}
