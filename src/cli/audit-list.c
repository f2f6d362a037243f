/* The lines of the audit log as a table or as they are, and new ones as they come. Reads only. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "cli/audit.h"
#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/escape.h"
#include "core/text.h"

enum { EVENT_WIDTH = 13, LOOK_ANYWAY_MS = 1000 };

struct item {
  char *time, *line; /* what is printed */
};

struct collection {
  const struct audit_listing *listing;
  struct item *items;
  size_t count;
  json_t *seen; /* how many lines of each file were looked at before */
  bool ended;   /* the one session is over */
};

static const char *text_of(const json_t *json, const char *key) {
  const char *text = json_string_value(json_object_get(json, key));
  return text ? text : "";
}

/* 2026-11-15T23:29:27.645335682Z → 2026-11-15 23:29:27 */
static char *table_line(const json_t *json) {
  _cleanup_free_ char *what = audit_describe(json),
                      *session = escape_string(text_of(json, "session"));
  _cleanup_free_ char *time = escape_string(text_of(json, "time"));
  _cleanup_free_ char *event = escape_string(text_of(json, "event"));
  if (strlen(time) > 19) {
    time[10] = ' ';
    time[19] = '\0';
  }
  return xasprintf("%s  %-8s  %-*s  %s\n", time, session, EVENT_WIDTH, event, what);
}

static bool is_wanted(const struct audit_listing *listing, const json_t *json) {
  bool plain = !listing->json && !listing->filter->event;
  return audit_matches(listing->filter, json) && !(plain && audit_is_housekeeping(json));
}

static bool is_new(struct collection *collection, const struct audit_entry *entry) {
  json_int_t seen = json_integer_value(json_object_get(collection->seen, entry->file));
  if ((json_int_t)entry->line <= seen)
    return false;
  json_object_set_new(collection->seen, entry->file, json_integer((json_int_t)entry->line));
  return true;
}

static bool collect(void *context, const struct audit_entry *entry) {
  struct collection *collection = context;
  const struct audit_listing *listing = collection->listing;
  const char *event = text_of(entry->json, "event");
  if (!is_new(collection, entry))
    return true;
  collection->ended |=
      listing->session && (strcmp(event, "session.end") == 0 || strcmp(event, "log.seal") == 0);
  if (!is_wanted(listing, entry->json))
    return true;
  ARRAY_GROW(collection->items, collection->count);
  collection->items[collection->count++] = (struct item){
      .time = xstrdup(text_of(entry->json, "time")),
      .line = listing->json ? xasprintf("%s\n", entry->text) : table_line(entry->json),
  };
  return true;
}

static int by_time(const void *left, const void *right) {
  return strcmp(((const struct item *)left)->time, ((const struct item *)right)->time);
}

static void collection_clear(struct collection *collection) {
  for (size_t i = 0; i < collection->count; i++) {
    free(collection->items[i].time);
    free(collection->items[i].line);
  }
  free(collection->items);
  collection->items = NULL;
  collection->count = 0;
}

/* Prints what is new. Returns an exit code, or -1 with the error. */
static int print_new(struct collection *collection, struct sb_error *error) {
  const struct audit_listing *listing = collection->listing;
  if (audit_read(listing->home, listing->session, collect, collection, error) < 0)
    return -1;
  if (collection->count > 1)
    qsort(collection->items, collection->count, sizeof *collection->items, by_time);
  _cleanup_text_ struct text text = {0};
  for (size_t i = 0; i < collection->count; i++)
    text_append(&text, collection->items[i].line);
  collection_clear(collection);
  return text.length ? cli_print(text_string(&text)) : 0;
}

int audit_print(const struct audit_listing *listing, struct sb_error *error) {
  struct collection collection = {.listing = listing, .seen = json_object()};
  int result = print_new(&collection, error);
  collection_clear(&collection);
  json_decref(collection.seen);
  return result;
}

/* Waits until something in the folder changes; without inotify, a while. */
static void wait_for_change(int watch) {
  char events[4096];
  struct pollfd watched = {.fd = watch, .events = POLLIN};
  if (poll(&watched, 1, LOOK_ANYWAY_MS) > 0)
    (void)!read(watch, events, sizeof events);
}

int audit_follow(const struct audit_listing *listing, struct sb_error *error) {
  struct collection collection = {.listing = listing, .seen = json_object()};
  _cleanup_free_ char *folder = audit_folder(listing->home);
  _cleanup_close_ int watch = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
  if (watch >= 0)
    (void)inotify_add_watch(watch, folder, IN_MODIFY | IN_CREATE);
  int result;
  while ((result = print_new(&collection, error)) == 0 && !collection.ended)
    wait_for_change(watch);
  collection_clear(&collection);
  json_decref(collection.seen);
  return result;
}
