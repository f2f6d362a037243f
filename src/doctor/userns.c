/* Judging why a user namespace cannot be had. Pure; the trying is in probe-userns.c. */
#include "doctor/userns.h"

#include <errno.h>
#include <stddef.h>

#include "core/cleanup.h"
#include "doctor/paths.h"

#define APPARMOR_PROFILE SANDBOX_SYSCONFDIR "/apparmor.d/sandbox"
#define SET_FOR_GOOD(name, value)                                                                  \
  "sudo sysctl -w " name "=" value " (for good: echo " name "=" value                              \
  " | sudo tee /etc/sysctl.d/60-sandbox.conf)"

static const struct userns_explanation explanations[USERNS_REASON_COUNT] = {
    [USERNS_WORKS] = {DOCTOR_OK, "works", NULL},
    [USERNS_LIMIT_ZERO] = {DOCTOR_RESTRICTED, "user.max_user_namespaces is 0",
                           SET_FOR_GOOD("user.max_user_namespaces", "15000")},
    [USERNS_LIMIT_REACHED] =
        {DOCTOR_RESTRICTED,
         "the limit user.max_user_namespaces is used up, here or further out, or they "
         "are nested 32 deep already",
         SET_FOR_GOOD("user.max_user_namespaces", "60000")},
    [USERNS_TOO_DEEP] = {DOCTOR_RESTRICTED, "user namespaces are already nested 32 deep",
                         "start from fewer nested containers"},
    [USERNS_CLONE_SYSCTL] = {DOCTOR_RESTRICTED, "kernel.unprivileged_userns_clone is 0",
                             SET_FOR_GOOD("kernel.unprivileged_userns_clone", "1")},
    [USERNS_APPARMOR] = {DOCTOR_RESTRICTED,
                         "AppArmor restricts user namespaces to programs with a profile "
                         "(kernel.apparmor_restrict_unprivileged_userns is 1)",
                         "sudo apparmor_parser -r " APPARMOR_PROFILE
                         " (loads the installed profile; it is "
                         "for " SANDBOX_BINDIR "/sandbox only, not for a copy elsewhere)"},
    [USERNS_APPARMOR_NO_PROFILE] =
        {DOCTOR_RESTRICTED,
         "AppArmor restricts user namespaces to programs with a profile "
         "(kernel.apparmor_restrict_unprivileged_userns is 1) and ours is not installed",
         "sudo make install, which installs " APPARMOR_PROFILE " for " SANDBOX_BINDIR
         "/sandbox, then sudo apparmor_parser -r " APPARMOR_PROFILE},
    [USERNS_INSIDE] = {DOCTOR_RESTRICTED,
                       "this is a sandbox already, and none can be made inside of one",
                       "run the command as it is, for it is confined already, or start it from "
                       "outside of the session"},
    [USERNS_OUTER_SECCOMP] = {DOCTOR_RESTRICTED,
                              "a seccomp filter from outside (a container's) forbids them",
                              "start the container with --security-opt seccomp=unconfined "
                              "(Kubernetes: seccompProfile type: Unconfined)"},
    [USERNS_CHROOT] = {DOCTOR_RESTRICTED, "the kernel refuses them inside a chroot",
                       "enter the tree by pivot_root instead of chroot (systemd-nspawn -D DIR, "
                       "bwrap --bind DIR /)"},
    [USERNS_UNMAPPED] = {DOCTOR_RESTRICTED,
                         "our own user id has no mapping in the namespace we run in",
                         "start the outer namespace with a map (unshare --map-current-user)"},
    [USERNS_NO_KERNEL_SUPPORT] = {DOCTOR_MISSING, "the kernel has no user namespaces",
                                  "boot a kernel built with CONFIG_USER_NS=y"},
    [USERNS_NO_PROC] = {DOCTOR_RESTRICTED,
                        "/proc is missing or read-only: the id maps cannot be written",
                        "mount -t proc proc /proc"},
    [USERNS_SECURITY_MODULE] = {DOCTOR_RESTRICTED,
                                "a security module (AppArmor, SELinux) refuses them",
                                "sudo dmesg | grep -i -e denied -e avc names the rule; in a "
                                "container: --security-opt apparmor=unconfined or label=disable"},
    [USERNS_UNKNOWN] = {DOCTOR_RESTRICTED, "the kernel refuses them for a reason it does not tell",
                        "sudo dmesg | tail, and what started this shell, may tell"},
};

const struct userns_explanation *userns_explain(enum userns_reason reason) {
  return &explanations[reason < USERNS_REASON_COUNT ? reason : USERNS_UNKNOWN];
}

static bool limit_is_zero(const struct userns_facts *facts) {
  return facts->errnum == ENOSPC && facts->max_user_namespaces == 0;
}

static bool limit_is_reached(const struct userns_facts *facts) {
  return facts->errnum == ENOSPC;
}

static bool is_too_deep(const struct userns_facts *facts) {
  return facts->errnum == EUSERS;
}

static bool is_refused(const struct userns_facts *facts) {
  return facts->errnum == EPERM || facts->errnum == EACCES;
}

static bool is_clone_sysctl(const struct userns_facts *facts) {
  return facts->stage == USERNS_CREATE && facts->errnum == EPERM &&
         facts->unprivileged_userns_clone == 0 && !facts->privileged;
}

static bool is_chroot(const struct userns_facts *facts) {
  return facts->stage == USERNS_CREATE && facts->errnum == EPERM && facts->chrooted;
}

static bool is_unmapped(const struct userns_facts *facts) {
  return facts->stage == USERNS_CREATE && facts->errnum == EPERM && facts->unmapped;
}

static bool is_outer_seccomp(const struct userns_facts *facts) {
  return facts->stage == USERNS_CREATE && facts->filtered &&
         (facts->errnum == EPERM || facts->errnum == ENOSYS);
}

static bool is_inside(const struct userns_facts *facts) {
  return facts->inside && is_outer_seccomp(facts);
}

/* Ubuntu lets the namespace be made and takes its capabilities away (stage MAP or USE) where the
 * profile `unprivileged_userns` exists, and refuses with EACCES where it does not. */
static bool is_apparmor(const struct userns_facts *facts) {
  return facts->apparmor_restricts == 1 && !facts->privileged && is_refused(facts);
}

static bool is_apparmor_without_profile(const struct userns_facts *facts) {
  return is_apparmor(facts) && !facts->profile_installed;
}

static bool is_no_kernel_support(const struct userns_facts *facts) {
  return facts->stage == USERNS_CREATE && (facts->errnum == ENOSYS || facts->errnum == EINVAL);
}

static bool is_no_proc(const struct userns_facts *facts) {
  bool map_failed = facts->stage == USERNS_MAP;
  return facts->no_proc || (map_failed && (facts->errnum == ENOENT || facts->errnum == EROFS));
}

static bool is_security_module(const struct userns_facts *facts) {
  return facts->errnum == EACCES || (facts->stage > USERNS_CREATE && facts->errnum == EPERM);
}

/* In this order: the first that fits. A filter answers before AppArmor is asked, and the exact
 * settings come before the guesses. */
static const struct {
  bool (*fits)(const struct userns_facts *facts);
  enum userns_reason reason;
} rules[] = {
    {limit_is_zero, USERNS_LIMIT_ZERO},
    {limit_is_reached, USERNS_LIMIT_REACHED},
    {is_too_deep, USERNS_TOO_DEEP},
    {is_clone_sysctl, USERNS_CLONE_SYSCTL},
    {is_chroot, USERNS_CHROOT},
    {is_unmapped, USERNS_UNMAPPED},
    {is_inside, USERNS_INSIDE},
    {is_outer_seccomp, USERNS_OUTER_SECCOMP},
    {is_apparmor_without_profile, USERNS_APPARMOR_NO_PROFILE},
    {is_apparmor, USERNS_APPARMOR},
    {is_no_kernel_support, USERNS_NO_KERNEL_SUPPORT},
    {is_no_proc, USERNS_NO_PROC},
    {is_security_module, USERNS_SECURITY_MODULE},
};

enum userns_reason userns_judge(const struct userns_facts *facts) {
  if (facts->stage == USERNS_CREATED_AND_USED)
    return USERNS_WORKS;
  for (size_t i = 0; i < ARRAY_SIZE(rules); i++)
    if (rules[i].fits(facts))
      return rules[i].reason;
  return USERNS_UNKNOWN;
}
