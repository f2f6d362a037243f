/* Other programs' sandbox settings as our policy. An importer is a table of the keys it knows; what
 * our policy cannot express, and every key that is not in the table, is listed, never dropped in
 * silence. Pure, but for TOML, which a helper program reads. */
#pragma once

#include "core/arena.h"
#include "core/error.h"
#include "core/strv.h"
#include "policy/tree.h"

struct import_result {
  char *policy;       /* our YAML */
  struct strv lost;   /* what cannot be expressed: "FILE:LINE: KEY: why" */
  struct strv notes;  /* what is expressed and means something slightly different here */
  const char *format; /* the importer's name */
};
void import_result_clear(struct import_result *result);
#define _cleanup_import_ __attribute__((cleanup(import_result_clear)))

/* Imports with the importer of this name ("claude", "srt", "dive", "mycode", "neuraphage"), or with
 * the one that recognises the text if it is NULL. `file` is for messages and for recognising.
 * Errors name file, line and column. */
int policy_import_foreign(const char *format, const char *file, const char *text, size_t length,
                          struct import_result *ret, struct sb_error *error);

/* ---- for importers ---- */

struct importer;
struct import_key;

/* An import under way. */
struct import {
  const struct importer *importer;
  const char *file; /* escaped */
  struct import_result *result;
  struct sb_error *error;
  struct import_value *values; /* what the policy will say, by our keys */
  size_t value_count;
};

/* Takes the value of one foreign key. Returns -1 with the error set. */
typedef int import_take(struct import *import, const struct import_key *key,
                        const struct node *node);

struct import_key {
  const char *name; /* dotted, below the importer's root */
  import_take *take;
  const char *target; /* our key */
  /* For booleans: what our key is set to; "" or NULL: nothing. NULL and a reason: lost. */
  const char *if_true, *if_false;
  const char *why; /* why it cannot be expressed */
};

struct importer {
  const char *name, *summary;
  bool is_toml;
  const char *root; /* the section the settings are in ("sandbox"), or NULL */
  bool root_is_optional;
  const struct import_key *keys;    /* ends with a NULL name */
  const char *const *recognised_by; /* keys below the root that only this format has */
  const char *file_name;            /* end of the usual file name, or NULL */
  const struct import_key *beside;  /* keys beside the root; NULL: none is looked at */
  int (*finish)(struct import *import);
};
extern const struct importer claude_importer, srt_importer, dive_importer, mycode_importer,
    neuraphage_importer;

/* The usual takers. */
import_take take_boolean; /* true, false → if_true, if_false */
import_take take_number;  /* a number as it is */
import_take take_text;    /* a text as it is */
import_take take_paths;   /* literal paths */
import_take take_texts;   /* a list of texts */
import_take take_lost;    /* cannot be expressed: listed */
import_take take_nothing; /* is so here in any case */

int import_fail(struct import *import, const struct node *node, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void import_lose(struct import *import, const struct node *node, const char *name, const char *why);
__attribute__((format(printf, 2, 3))) void import_note(struct import *import, const char *format,
                                                       ...);

/* Sets a scalar of ours; adds to a list of ours; sets NAME to a value in a mapping of ours. A key
 * that this version does not have is listed as lost. */
void import_set(struct import *import, const struct node *node, const char *key, const char *value);
void import_add(struct import *import, const struct node *node, const char *key, const char *item);
bool import_has(const struct import *import, const char *key, const char *item);

/* A literal path as one of ours: only a leading ~ keeps its meaning. New string. */
char *import_path(const char *path);

/* A glob as one of ours: no variables. New string. */
char *import_glob(const char *glob);

/* Checks the type of a node; false sets the error. */
bool import_is_text(struct import *import, const struct import_key *key, const struct node *node);
/* Every item of a list of texts, one after the other. */
typedef void import_item(struct import *import, const struct import_key *key,
                         const struct node *item);
int import_items(struct import *import, const struct import_key *key, const struct node *node,
                 import_item *take);

/* Sets our key to one of the words, which our key has as well; `words` ends with NULL. */
int import_choice(struct import *import, const struct import_key *key, const struct node *node,
                  const char *const *words);
int import_boolean(struct import *import, const struct import_key *key, const struct node *node,
                   bool *ret);
int import_integer(struct import *import, const struct import_key *key, const struct node *node,
                   long low, long high, long *ret);

/* TOML as a tree; see toml.c. */
int toml_parse(const char *file, const char *data, size_t length, struct arena *arena,
               struct node **ret_root, struct sb_error *error);
