/* Names to addresses; see resolve.h. */
#include "net/resolve.h"

#include <ares.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/strv.h"

#define REMEMBER_MS    3000 /* an answer is used again; the guard looks at it each time */
#define REMEMBERED     64
#define WATCHED        64
#define ASK_MS         2500
#define ASK_TRIES      2
#define NAME_PATH_SIZE 32
#define RENEW_MS       2000 /* then the monitor is told again that the files are others */

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
  bool is_asked; /* else it waits for the files */
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
  resolve_renew *renew;
  struct name_stamp stamp; /* of the files that we have, or that were asked for last */
  bool renewing;           /* other files are on their way */
  uint64_t renew_again_ms;
  int copies[NAME_FILES];                 /* -1: the files themselves are read */
  char paths[NAME_FILES][NAME_PATH_SIZE]; /* where they are read */
  struct strv domains;                    /* of `search` */
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
      .resolvconf_path = resolver->paths[NAME_FILE_RESOLVER],
  };
  int mask = ARES_OPT_FLAGS | ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES | ARES_OPT_LOOKUPS |
             ARES_OPT_SOCK_STATE_CB | ARES_OPT_RESOLVCONF;
  /* The other path has no option that all versions know. */
  if (setenv("CARES_HOSTS", resolver->paths[NAME_FILE_HOSTS], 1) < 0 ||
      ares_init_options(&resolver->channel, &options, mask) != ARES_SUCCESS)
    return -1;
  read_domains(resolver);
  return 0;
}

struct resolver *resolver_new(struct loop *loop, resolve_renew *renew) {
  struct resolver *resolver = xcalloc(1, sizeof *resolver);
  *resolver = (struct resolver){.loop = loop, .renew = renew, .copies = {-1, -1}};
  for (int i = 0; i < NAME_FILES; i++)
    snprintf(resolver->paths[i], NAME_PATH_SIZE, "%s", name_file_paths[i]);
  for (size_t i = 0; i < WATCHED; i++)
    resolver->watches[i].watch.fd = -1;
  (void)name_stamp_renew(&resolver->stamp);
  if (ares_library_init(ARES_LIB_INIT_ALL) != ARES_SUCCESS || open_channel(resolver) < 0) {
    free(resolver);
    return NULL;
  }
  return resolver;
}

/* Nobody is asked meanwhile: the old name servers may be of a network that we have left. */
static void renew_files(struct resolver *resolver) {
  resolver->renewing = true;
  resolver->renew_again_ms = loop_now_ms() + RENEW_MS;
  resolver->renew();
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
  if (result == ARES_EDESTRUCTION) { /* on its way to the old servers: the new ones are asked */
    question->is_asked = false;
    return;
  }
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

static void ask_outside(struct question *question) {
  struct ares_addrinfo_hints hints = {
      .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = ARES_AI_ENVHOSTS};
  question->is_asked = true;
  ares_getaddrinfo(question->resolver->channel, question->name, NULL, &hints, on_answer, question);
}

void resolver_ask(struct resolver *resolver, const char *name, resolve_callback *callback,
                  void *context) {
  const struct resolved *known = recall(resolver, name);
  if (known) {
    struct resolved copy = *known;
    callback(context, &copy);
    return;
  }
  if (name_stamp_renew(&resolver->stamp))
    renew_files(resolver);
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
  if (is_new && !resolver->renewing)
    ask_outside(question);
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

/* ---- other files ---- */

static void use_copies(struct resolver *resolver, const int copies[NAME_FILES]) {
  for (int i = 0; i < NAME_FILES; i++) {
    if (resolver->copies[i] >= 0)
      close(resolver->copies[i]);
    resolver->copies[i] = copies[i];
    snprintf(resolver->paths[i], NAME_PATH_SIZE, "/proc/self/fd/%d", copies[i]);
  }
}

static struct question *find_unasked(const struct resolver *resolver) {
  struct question *question = resolver->questions;
  while (question && question->is_asked)
    question = question->next;
  return question;
}

/* There was no memory for them, or no descriptor is left here. Better what we have than nothing;
 * the next who asks has us try again. */
static void go_on_without(struct resolver *resolver, const int copies[NAME_FILES]) {
  for (int i = 0; i < NAME_FILES; i++) {
    if (copies[i] >= 0)
      close(copies[i]);
  }
  resolver->stamp = (struct name_stamp){0};
}

static void replace_channel(struct resolver *resolver) {
  ares_channel old = resolver->channel;
  if (open_channel(resolver) == 0)
    ares_destroy(old);
  else
    resolver->channel = old;
}

void resolver_take_files(struct resolver *resolver, const int copies[NAME_FILES]) {
  struct question *question;
  if (copies[NAME_FILE_RESOLVER] < 0 || copies[NAME_FILE_HOSTS] < 0) {
    go_on_without(resolver, copies);
  } else {
    use_copies(resolver, copies);
    replace_channel(resolver);
  }
  resolver->renewing = false;
  while ((question = find_unasked(resolver))) /* one may be answered at once, and lead to others */
    ask_outside(question);
}

/* ---- time ---- */

int resolver_timeout(struct resolver *resolver) {
  struct timeval most = {.tv_sec = 60}, wait;
  if (resolver->renewing)
    most = (struct timeval){.tv_sec = RENEW_MS / 1000};
  if (!resolver->questions || !ares_timeout(resolver->channel, &most, &wait))
    return -1;
  return (int)(wait.tv_sec * 1000 + wait.tv_usec / 1000 + 1);
}

void resolver_tick(struct resolver *resolver) {
  if (!resolver->questions)
    return;
  ares_process_fd(resolver->channel, ARES_SOCKET_BAD, ARES_SOCKET_BAD);
  if (resolver->renewing && loop_now_ms() >= resolver->renew_again_ms)
    renew_files(resolver);
}
