/* YAML events into a tree; see tree.h. libyaml does the parsing; its input may be hostile, so depth
 * and number of nodes are bounded and nothing is shared or expanded. */
#include "policy/tree.h"

#include <string.h>
#include <yaml.h>

#include "core/cleanup.h"

enum { TREE_DEPTH_MAX = 8, TREE_NODES_MAX = 5000 };

struct builder {
  yaml_parser_t parser;
  const char *file, *data;
  size_t length;
  struct arena *arena;
  struct sb_error *error;
  unsigned nodes, nodes_max;
};

static void cleanup_event(yaml_event_t *event) {
  yaml_event_delete(event);
}
#define _cleanup_event_ __attribute__((cleanup(cleanup_event)))

static int fail_at(struct builder *builder, yaml_mark_t mark, const char *what) {
  return sb_fail(builder->error, SB_CODE_POLICY, 0, "%s:%zu:%zu: %s", builder->file, mark.line + 1,
                 mark.column + 1, what);
}

/* libyaml's reader knows only the byte's offset. */
static yaml_mark_t mark_of_offset(const struct builder *builder, size_t offset) {
  yaml_mark_t mark = {0};
  for (size_t i = 0; i < offset && i < builder->length; i++) {
    mark.column++;
    if (builder->data[i] == '\n')
      mark = (yaml_mark_t){.line = mark.line + 1};
  }
  return mark;
}

static bool line_has_tab(const struct builder *builder, size_t line) {
  const char *at = builder->data, *end = builder->data + builder->length;
  for (; line > 0 && at < end; line--) {
    const char *newline = memchr(at, '\n', (size_t)(end - at));
    at = newline ? newline + 1 : end;
  }
  const char *newline = memchr(at, '\n', (size_t)(end - at));
  return memchr(at, '\t', (size_t)((newline ? newline : end) - at));
}

static int fail_parser(struct builder *builder) {
  const yaml_parser_t *parser = &builder->parser;
  const char *problem = parser->problem ? parser->problem : "not valid YAML";
  if (parser->error == YAML_READER_ERROR) {
    fail_at(builder, mark_of_offset(builder, parser->problem_offset), problem);
    return sb_hint(builder->error, "save the file as UTF-8 text");
  }
  fail_at(builder, parser->problem_mark, problem);
  if (line_has_tab(builder, parser->problem_mark.line))
    return sb_hint(builder->error, "indent with spaces: YAML does not allow tabs");
  return sb_hint(builder->error, "check indentation, quotes and brackets around this place; a text "
                                 "that starts with * or [ needs quotes");
}

static int next_event(struct builder *builder, yaml_event_t *ret) {
  return yaml_parser_parse(&builder->parser, ret) ? 0 : fail_parser(builder);
}

/* Anchors let a few bytes stand for gigabytes, tags change what a value is: a policy needs none. */
static int refuse_extras(struct builder *builder, const yaml_event_t *event) {
  const yaml_char_t *anchor = NULL, *tag = NULL;
  if (event->type == YAML_SCALAR_EVENT) {
    anchor = event->data.scalar.anchor;
    tag = event->data.scalar.tag;
  } else if (event->type == YAML_SEQUENCE_START_EVENT) {
    anchor = event->data.sequence_start.anchor;
    tag = event->data.sequence_start.tag;
  } else if (event->type == YAML_MAPPING_START_EVENT) {
    anchor = event->data.mapping_start.anchor;
    tag = event->data.mapping_start.tag;
  }
  if (event->type != YAML_ALIAS_EVENT && !anchor && !tag)
    return 0;
  fail_at(builder, event->start_mark,
          tag ? "tags (!...) are not allowed in a policy"
              : "anchors and aliases (& and *) are not allowed in a policy");
  return sb_hint(builder->error, "write the value out, or put it in quotes if it is text");
}

static struct node *new_node(struct builder *builder, enum node_type type, yaml_mark_t mark) {
  struct node *node = arena_alloc(builder->arena, sizeof *node);
  *node = (struct node){
      .type = type, .line = (unsigned)mark.line + 1, .column = (unsigned)mark.column + 1};
  return node;
}

static int build_scalar(struct builder *builder, const yaml_event_t *event, struct node **ret) {
  const char *value = (const char *)event->data.scalar.value;
  size_t length = event->data.scalar.length;
  if (memchr(value, '\0', length))
    return fail_at(builder, event->start_mark, "the text contains a NUL byte");
  struct node *node = new_node(builder, NODE_SCALAR, event->start_mark);
  node->text = arena_strndup(builder->arena, value, length);
  node->plain = event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
  *ret = node;
  return 0;
}

static int build_node(struct builder *builder, const yaml_event_t *event, unsigned depth,
                      struct node **ret);

static int build_child(struct builder *builder, unsigned depth, struct node **ret) {
  _cleanup_event_ yaml_event_t event = {0};
  if (next_event(builder, &event) < 0)
    return -1;
  if (event.type == YAML_SEQUENCE_END_EVENT || event.type == YAML_MAPPING_END_EVENT) {
    *ret = NULL;
    return 0;
  }
  return build_node(builder, &event, depth, ret);
}

static int build_entries(struct builder *builder, struct node *parent, unsigned depth) {
  struct node **place = &parent->first;
  for (;;) {
    struct node *entry, *key = NULL;
    if (parent->type == NODE_MAPPING && build_child(builder, depth, &key) < 0)
      return -1;
    if (parent->type == NODE_MAPPING && !key)
      return 0;
    if (build_child(builder, depth, &entry) < 0)
      return -1;
    if (!entry)
      return 0;
    entry->key = key;
    *place = entry;
    place = &entry->next;
  }
}

static int build_node(struct builder *builder, const yaml_event_t *event, unsigned depth,
                      struct node **ret) {
  if (refuse_extras(builder, event) < 0)
    return -1;
  if (++builder->nodes > builder->nodes_max)
    return fail_at(builder, event->start_mark, "the policy has too many entries");
  if (event->type == YAML_SCALAR_EVENT)
    return build_scalar(builder, event, ret);
  if (depth == TREE_DEPTH_MAX)
    return fail_at(builder, event->start_mark, "the policy is nested too deeply");
  bool sequence = event->type == YAML_SEQUENCE_START_EVENT;
  *ret = new_node(builder, sequence ? NODE_SEQUENCE : NODE_MAPPING, event->start_mark);
  return build_entries(builder, *ret, depth + 1);
}

static int expect_no_more(struct builder *builder) {
  _cleanup_event_ yaml_event_t end = {0}, after = {0};
  if (next_event(builder, &end) < 0 || next_event(builder, &after) < 0)
    return -1;
  if (after.type == YAML_STREAM_END_EVENT)
    return 0;
  fail_at(builder, after.start_mark, "a second document starts here");
  return sb_hint(builder->error, "put everything into one document, without --- in between");
}

static int build_document(struct builder *builder, struct node **ret) {
  _cleanup_event_ yaml_event_t stream = {0}, start = {0};
  if (next_event(builder, &stream) < 0 || next_event(builder, &start) < 0)
    return -1;
  if (start.type == YAML_STREAM_END_EVENT) {
    fail_at(builder, start.start_mark, "the file is empty");
    return sb_hint(builder->error, "start it with the line: version: 1");
  }
  _cleanup_event_ yaml_event_t event = {0};
  if (next_event(builder, &event) < 0 || build_node(builder, &event, 0, ret) < 0)
    return -1;
  return expect_no_more(builder);
}

int tree_parse(const char *file, const char *data, size_t length, struct arena *arena,
               struct node **ret_root, struct sb_error *error) {
  return tree_parse_limited(file, data, length, TREE_NODES_MAX, arena, ret_root, error);
}

/* What some editors put before the text. libyaml takes it for a column, and finds the second line
 * not to be indented like the first. */
static size_t byte_order_mark(const char *data, size_t length) {
  static const char mark[] = "\xef\xbb\xbf";
  size_t size = sizeof mark - 1;
  return length >= size && memcmp(data, mark, size) == 0 ? size : 0;
}

int tree_parse_limited(const char *file, const char *data, size_t length, unsigned nodes_max,
                       struct arena *arena, struct node **ret_root, struct sb_error *error) {
  size_t skipped = byte_order_mark(data, length);
  struct builder builder = {.file = file,
                            .data = data + skipped,
                            .length = length - skipped,
                            .arena = arena,
                            .error = error,
                            .nodes_max = nodes_max};
  if (!yaml_parser_initialize(&builder.parser))
    return sb_fail(error, SB_CODE_SYSTEM, ENOMEM, "reading %s", file);
  yaml_parser_set_encoding(&builder.parser, YAML_UTF8_ENCODING);
  yaml_parser_set_input_string(&builder.parser, (const unsigned char *)builder.data,
                               builder.length);
  int result = build_document(&builder, ret_root);
  yaml_parser_delete(&builder.parser);
  return result;
}

const char *node_type_name(const struct node *node) {
  static const char *const names[] = {
      [NODE_SCALAR] = "text", [NODE_SEQUENCE] = "a list", [NODE_MAPPING] = "a mapping"};
  return names[node->type];
}
