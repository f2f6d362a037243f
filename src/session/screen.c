/* Modes of the user's terminal as the workload set them; see screen.h. Follows only what it must:
 * a sequence that it does not know changes nothing here. */
#include "session/screen.h"

#include <string.h>

#include "core/cleanup.h"

/* DEC private modes that a prompt switches, and what they are during it. The alternate screen is
 * only looked at. HOME: off as well, but each switching moves the cursor to the top. */
static const struct {
  unsigned number;
  enum { LEAVE, OFF, ON, HOME } during;
} modes[SCREEN_MODE_COUNT] = {
    {1, OFF},                                  /* cursor keys as applications like them */
    {5, OFF},                                  /* reverse video */
    {6, HOME},                                 /* origin at the margins */
    {7, ON},                                   /* wrap at the right margin */
    {25, ON},                                  /* cursor visible */
    {47, LEAVE}, {1047, LEAVE}, {1049, LEAVE}, /* alternate screen */
    {9, OFF},    {1000, OFF},   {1002, OFF},   {1003, OFF}, /* mouse */
    {1004, OFF},                                            /* focus events */
    {1005, OFF}, {1006, OFF},   {1015, OFF},                /* forms of mouse reports */
    {2004, OFF},                                            /* bracketed paste */
    {69, OFF},                                              /* margins at the sides */
    {2026, OFF},                                            /* synchronised output */
};

static void set_modes(struct screen *screen, bool on) {
  for (size_t i = 0; i <= screen->number_count && i < ARRAY_SIZE(screen->numbers); i++) {
    for (size_t mode = 0; mode < SCREEN_MODE_COUNT; mode++) {
      if (modes[mode].number != screen->numbers[i])
        continue;
      screen->on[mode] = on;
      screen->known[mode] = true;
    }
  }
}

static void start_sequence(struct screen *screen) {
  screen->state = SCREEN_SEQUENCE;
  screen->prefix = screen->intermediate = '\0';
  screen->number_count = 0;
  memset(screen->numbers, 0, sizeof screen->numbers);
}

static void take_escape(struct screen *screen, char byte) {
  if (byte == '[') {
    start_sequence(screen);
    return;
  }
  if (byte == '=' || byte == '>')
    screen->keypad = byte == '=';
  screen->images |= byte == '_'; /* a string for the terminal's own program: hardly anything else */
  if (byte == 'c')               /* full reset */
    *screen = (struct screen){.used = true};
  screen->state = SCREEN_TEXT;
}

static void take_number(struct screen *screen, char byte) {
  unsigned *number = &screen->numbers[screen->number_count % ARRAY_SIZE(screen->numbers)];
  if (*number < 100000)
    *number = *number * 10 + (unsigned)(byte - '0');
}

bool screen_is_alternate(const struct screen *screen) {
  for (size_t i = 0; i < SCREEN_MODE_COUNT; i++) {
    if (modes[i].during == LEAVE && screen->on[i])
      return true;
  }
  return false;
}

static struct screen_keys *keys_of(struct screen *screen) {
  return &screen->keys[screen_is_alternate(screen)];
}

static void push_keys(struct screen_keys *keys, unsigned flags) {
  if (keys->top + 1 == SCREEN_KEYS_DEPTH)
    memmove(keys->flags, keys->flags + 1, keys->top-- * sizeof *keys->flags);
  keys->flags[++keys->top] = flags;
}

static void pop_keys(struct screen_keys *keys, unsigned count) {
  for (unsigned i = 0; i < (count ? count : 1); i++) {
    keys->flags[keys->top] = 0;
    if (keys->top == 0)
      return;
    keys->top--;
  }
}

static void set_keys(struct screen_keys *keys, unsigned flags, unsigned how) {
  unsigned *current = &keys->flags[keys->top];
  *current = how == 2 ? *current | flags : how == 3 ? *current & ~flags : flags;
}

static void change_keys(struct screen *screen) {
  const unsigned *numbers = screen->numbers;
  screen->keys_known = true;
  if (screen->prefix == '>')
    push_keys(keys_of(screen), numbers[0]);
  else if (screen->prefix == '<')
    pop_keys(keys_of(screen), numbers[0]);
  else
    set_keys(keys_of(screen), numbers[0], numbers[1]);
}

static void end_sequence(struct screen *screen, char byte) {
  if (screen->prefix == '?' && (byte == 'h' || byte == 'l'))
    set_modes(screen, byte == 'h');
  else if (screen->prefix && screen->prefix != '?' && byte == 'u')
    change_keys(screen);
  else if (screen->prefix == '>' && byte == 'm' && (screen->numbers[0] == 4 || !screen->numbers[0]))
    screen->other_keys = screen->numbers[1];
  else if (screen->intermediate == '$' && byte == '}') {
    screen->status_line = screen->numbers[0] == 1;
    screen->status_line_known = true;
  }
  screen->state = SCREEN_TEXT;
}

static void take_sequence(struct screen *screen, char byte) {
  if (byte >= '<' && byte <= '?' && !screen->prefix)
    screen->prefix = byte;
  else if (byte >= '0' && byte <= '9')
    take_number(screen, byte);
  else if (byte == ';')
    screen->number_count += screen->number_count + 1 < ARRAY_SIZE(screen->numbers);
  else if (byte >= ' ' && byte <= '/')
    screen->intermediate = byte;
  else if ((unsigned char)byte >= 0x40)
    end_sequence(screen, byte);
}

/* The second set of controls as UTF-8: some terminals take them as an escape and a letter. */
#define LEAD 0xc2
static bool is_second_set(unsigned char byte) {
  return byte >= 0x80 && byte < 0xa0;
}

static void take_byte(struct screen *screen, unsigned char byte) {
  if (byte == LEAD) {
    screen->state = SCREEN_LEAD;
  } else if (byte == '\033') {
    screen->used = true;
    screen->state = SCREEN_ESCAPE;
  } else if (screen->state == SCREEN_LEAD && is_second_set(byte)) {
    screen->used = true;
    take_escape(screen, (char)(byte - 0x40));
  } else if (screen->state == SCREEN_ESCAPE) {
    take_escape(screen, (char)byte);
  } else if (screen->state == SCREEN_SEQUENCE) {
    take_sequence(screen, (char)byte);
  } else {
    screen->state = SCREEN_TEXT;
  }
}

/* Most of it is text. */
static size_t count_text(const char *bytes, size_t length) {
  size_t count = 0;
  while (count < length && bytes[count] != '\033' && (unsigned char)bytes[count] != LEAD)
    count++;
  return count;
}

void screen_feed(struct screen *screen, const char *bytes, size_t length) {
  for (size_t i = 0; i < length; i++) {
    if (screen->state == SCREEN_TEXT)
      i += count_text(bytes + i, length - i);
    if (i < length)
      take_byte(screen, (unsigned char)bytes[i]);
  }
}

static void append_mode(struct text *text, size_t mode, bool on) {
  text_appendf(text, "\033[?%u%c", modes[mode].number, on ? 'h' : 'l');
}

/* CAN ends a sequence, ST a string; then letters are letters again (G0 in ASCII, shifted in). A
 * soft reset puts margins, attributes and insertion back without moving the cursor; the palette is
 * the user's again, also for bold text. Not all terminals know it (tmux, the Linux console), and
 * within margins of the workload any line of a question could be lost: they are taken away once
 * more, and the cursor, which that sends to the top, is put back. Images that lie over the text
 * would stay there, or below it in its colour. Keys are bytes; the newer way to ask for that is
 * taken by some terminals for one to put the cursor back, so it is put where it was, and that way
 * and those to take images and the status line away are only used where a program has used such: a
 * terminal that does not know them may show them. Attributes come last:
 * some take the older way for one. */
void screen_append_reset(const struct screen *screen, struct text *text) {
  text_append(text, "\030\033\\");
  if (screen->status_line_known)
    text_append(text, "\033[0$}");
  text_append(text, "\033[!p\0337\033[r\033[?6l\0338");
  if (screen->images)
    text_append(text, "\033_Ga=d,q=2\033\\");
  if (screen->keys_known)
    text_append(text, "\0337\033[=0;1u\0338");
  text_append(
      text,
      "\033[>4;0m\033(B\017\033[0m\033>\033]104\033\\\033]105\033\\\033]110\033\\\033]111\033\\");
  for (size_t i = 0; i < SCREEN_MODE_COUNT; i++) {
    if (modes[i].during != LEAVE && modes[i].during != HOME)
      append_mode(text, i, modes[i].during == ON);
  }
}

void screen_append_restore(const struct screen *screen, struct text *text) {
  const struct screen_keys *keys = &screen->keys[screen_is_alternate(screen)];
  if (screen->keys_known)
    text_appendf(text, "\033[=%u;1u", keys->flags[keys->top]);
  if (screen->other_keys)
    text_appendf(text, "\033[>4;%um", screen->other_keys);
  text_append(text, "\033[0m");
  for (size_t i = 0; i < SCREEN_MODE_COUNT; i++) {
    if (modes[i].during != LEAVE && screen->known[i] && (screen->on[i] || modes[i].during != HOME))
      append_mode(text, i, screen->on[i]);
  }
  if (screen->keypad)
    text_append(text, "\033=");
  if (screen->status_line)
    text_append(text, "\033[1$}");
}
