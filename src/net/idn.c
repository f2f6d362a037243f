/* Punycode (RFC 3492); see idn.h. */
#include "net/idn.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

#include "core/cleanup.h"
#include "core/escape.h"
#include "core/text.h"

enum { BASE = 36, T_MIN = 1, T_MAX = 26, SKEW = 38, DAMP = 700, FIRST_BIAS = 72, FIRST = 128 };
enum { LABEL_LIMIT = 63 };

/* Letters that are what DNS has of them: small where there are large ones, and in one piece. Each
 * script by itself; a label of two could be one that only looks like another. */
static const struct {
  unsigned first, last;
  char script;
} letters[] = {
    {0xdf, 0xf6, 'l'},     {0xf8, 0xff, 'l'},     {0x3b1, 0x3c9, 'g'},   {0x430, 0x44f, 'c'},
    {0x451, 0x45f, 'c'},   {0x5d0, 0x5ea, 'h'},   {0x621, 0x63a, 'a'},   {0x641, 0x64a, 'a'},
    {0x3041, 0x3096, 'j'}, {0x30a1, 0x30fa, 'j'}, {0x4e00, 0x9fff, 'j'}, {0xac00, 0xd7a3, 'k'},
};

/* Of a letter; 0: not known. */
static char script_of(unsigned point) {
  if (point < 0x80)
    return isalpha((int)point) ? 'l' : '-';
  for (size_t i = 0; i < ARRAY_SIZE(letters); i++) {
    if (point >= letters[i].first && point <= letters[i].last)
      return letters[i].script;
  }
  return 0;
}

static bool read_label(const char *text, size_t length, unsigned ret_points[LABEL_LIMIT],
                       size_t *ret_count) {
  char script = '-';
  *ret_count = 0;
  for (size_t at = 0, used; at < length; at += used) {
    unsigned point;
    used = utf8_decode(text + at, length - at, &point);
    if (used == 0 || *ret_count == LABEL_LIMIT)
      return false;
    if (point < 0x80)
      point = (unsigned)tolower((int)point);
    char own = script_of(point);
    if (own == 0 || (own != '-' && script != '-' && own != script))
      return false;
    script = own == '-' ? script : own;
    ret_points[(*ret_count)++] = point;
  }
  return true;
}

static unsigned adapt(unsigned delta, unsigned points, bool first) {
  unsigned rounds = 0;
  delta /= first ? DAMP : 2;
  delta += delta / points;
  for (; delta > (BASE - T_MIN) * T_MAX / 2; rounds += BASE)
    delta /= BASE - T_MIN;
  return rounds + (BASE - T_MIN + 1) * delta / (delta + SKEW);
}

static void append_number(struct text *text, unsigned number, unsigned bias) {
  static const char digits[] = "abcdefghijklmnopqrstuvwxyz0123456789";
  for (unsigned k = BASE;; k += BASE) {
    unsigned t = k <= bias ? T_MIN : k >= bias + T_MAX ? T_MAX : k - bias;
    if (number < t)
      break;
    text_appendf(text, "%c", digits[t + (number - t) % (BASE - t)]);
    number = (number - t) / (BASE - t);
  }
  text_appendf(text, "%c", digits[number]);
}

static unsigned next_point(const unsigned *points, size_t count, unsigned from) {
  unsigned least = 0x110000;
  for (size_t i = 0; i < count; i++) {
    if (points[i] >= from && points[i] < least)
      least = points[i];
  }
  return least;
}

/* At most 63 points below 2^21: nothing overflows. */
static void encode(const unsigned *points, size_t count, struct text *ret) {
  unsigned basic = 0, bias = FIRST_BIAS, delta = 0, n = FIRST;
  text_append(ret, "xn--");
  for (size_t i = 0; i < count; i++) {
    if (points[i] < FIRST)
      text_appendf(ret, "%c", (char)points[i]), basic++;
  }
  if (basic > 0)
    text_append(ret, "-");
  for (unsigned handled = basic; handled < count; delta++, n++) {
    unsigned next = next_point(points, count, n);
    delta += (next - n) * (handled + 1);
    n = next;
    for (size_t i = 0; i < count; i++) {
      delta += points[i] < n;
      if (points[i] != n)
        continue;
      append_number(ret, delta, bias);
      bias = adapt(delta, handled + 1, handled == basic);
      delta = 0;
      handled++;
    }
  }
}

static bool is_ascii(const char *text, size_t length) {
  for (size_t i = 0; i < length; i++) {
    if ((unsigned char)text[i] >= 0x80)
      return false;
  }
  return true;
}

static bool append_label(const char *label, size_t length, struct text *ret) {
  unsigned points[LABEL_LIMIT];
  size_t count;
  if (is_ascii(label, length)) {
    text_append_bytes(ret, label, length);
    return true;
  }
  if (!read_label(label, length, points, &count))
    return false;
  encode(points, count, ret);
  return true;
}

char *idn_suggest(const char *rule) {
  _cleanup_text_ struct text text = {0};
  if (is_ascii(rule, strlen(rule)))
    return NULL;
  for (const char *at = rule;; at++) {
    size_t length = strcspn(at, ".:");
    if (!append_label(at, length, &text))
      return NULL;
    at += length;
    if (*at == '\0')
      return text_steal(&text);
    text_append_bytes(&text, at, 1);
  }
}
