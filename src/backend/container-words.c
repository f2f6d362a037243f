/* Paths and options as podman and docker want them spelled. Pure. */
#include <ctype.h>
#include <string.h>

#include "backend/container.h"
#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/path.h"
#include "core/text.h"

/* ---- Windows paths ---- */

static bool is_separator(char character) {
  return character == '\\' || character == '/';
}

static bool has_drive(const char *path) {
  return isalpha((unsigned char)path[0]) && path[1] == ':';
}

/* "\\?\C:\a" and "\\.\C:\a" are long forms of "C:\a". */
static const char *skip_long_form(const char *path) {
  bool is_long =
      path[0] == '\\' && path[1] == '\\' && (path[2] == '?' || path[2] == '.') && path[3] == '\\';
  return is_long ? path + 4 : path;
}

char *container_path(const char *host_path) {
  if (host_path[0] == '/') /* on Linux a backslash is a letter like any other */
    return xstrdup(host_path);
  const char *path = skip_long_form(host_path);
  if (!has_drive(path) || (path[2] && !is_separator(path[2])))
    return NULL;
  struct text text = {0};
  text_appendf(&text, "/%c", tolower((unsigned char)path[0]));
  for (const char *at = path + 2; *at; at++)
    text_append_char(&text, is_separator(*at) ? '/' : *at);
  _cleanup_free_ char *joined = text_steal(&text);
  return path_normalize(joined);
}

/* ---- options ---- */

/* The tools read --mount as one line of comma-separated values. */
char *container_field(const char *key, const char *value) {
  if (!value[strcspn(value, ",\"\r\n")])
    return xasprintf("%s=%s", key, value);
  struct text text = {0};
  text_appendf(&text, "\"%s=", key);
  for (const char *at = value; *at; at++) {
    if (*at == '"')
      text_append_char(&text, '"');
    text_append_char(&text, *at);
  }
  text_append_char(&text, '"');
  return text_steal(&text);
}

/* Who can talk to one of these starts containers as he likes, outside of ours. */
static const char *const control_sockets[] = {
    "docker.sock",  "podman.sock",    "containerd.sock",  "containerd.sock.ttrpc",
    "crio.sock",    "buildkitd.sock", "cri-dockerd.sock", "docker-proxy.sock",
    "kubelet.sock", "nerdctl.sock",   "lxd.socket",       "incus.socket",
};

bool container_is_control_socket(const char *path) {
  for (size_t i = 0; i < ARRAY_SIZE(control_sockets); i++) {
    if (strcmp(path_base(path), control_sockets[i]) == 0)
      return true;
  }
  return false;
}

/* Readers differ about quotes, backslashes, blanks at the ends, '#' and '$'; none has line ends. */
bool container_plain_value(const char *entry) {
  const char *value = strchr(entry, '=');
  if (!value || value == entry || entry[0] == '#')
    return false;
  for (const char *at = entry; *at; at++) {
    if (*at <= ' ' || *at > '~' || strchr("\"'\\#$`", *at))
      return false;
  }
  return strlen(entry) < 4096;
}
