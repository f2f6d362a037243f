/* A YAML file as a small tree with positions. Takes the part of YAML that a policy needs and
 * refuses the rest (anchors, aliases, tags, several documents) instead of guessing. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "core/arena.h"
#include "core/error.h"

enum node_type { NODE_SCALAR, NODE_SEQUENCE, NODE_MAPPING };

struct node {
  enum node_type type;
  unsigned line, column; /* from 1 */
  const char *text;      /* SCALAR: valid UTF-8 without NUL */
  bool plain;            /* SCALAR: written without quotes, so it may be a number, null, ... */
  struct node *key;      /* the key, for a value in a mapping */
  struct node *first;    /* SEQUENCE and MAPPING: the entries, in order */
  struct node *next;
};

/* Parses one document. Nodes live in the arena. Errors read FILE:LINE:COLUMN: ...; `file` is
 * escaped by the caller. */
int tree_parse(const char *file, const char *data, size_t length, struct arena *arena,
               struct node **ret_root, struct sb_error *error);

/* The same with another bound on the number of values. */
int tree_parse_limited(const char *file, const char *data, size_t length, unsigned nodes_max,
                       struct arena *arena, struct node **ret_root, struct sb_error *error);

/* "a list", "a mapping", "text", for messages. */
const char *node_type_name(const struct node *node);
