/* What every profile of a level says, whatever the policy: pure data. The operations are those that
 * macOS 11 and newer know; an unknown one would make the whole profile invalid. */
#include "backend/sbpl-base.h"

/* Denies by default. */
static const char restrictive[] =
    "(version 1)\n"
    "(deny default)\n"
    "\n"
    "; the command and what it starts, and no other process\n"
    "(allow process-exec)\n"
    "(allow process-fork)\n"
    "(allow signal (target same-sandbox))\n"
    "(allow process-info* (target same-sandbox))\n"
    "(allow sysctl-read)\n"
    "(allow ipc-posix-sem)\n"
    "(allow ipc-posix-shm-read-data (ipc-posix-name \"apple.shm.notification_center\"))\n"
    "(allow pseudo-tty)\n"
    "\n"
    "; accounts, logging and notifications; not the keychain, the pasteboard or other programs\n"
    "(allow mach-lookup\n"
    "  (global-name \"com.apple.system.opendirectoryd.libinfo\")\n"
    "  (global-name \"com.apple.system.opendirectoryd.membership\")\n"
    "  (global-name \"com.apple.system.logger\")\n"
    "  (global-name \"com.apple.logd\")\n"
    "  (global-name \"com.apple.system.notification_center\"))\n"
    "\n"
    "; what is not hidden is readable\n"
    "(allow file-read*)\n";

/* Allows by default, for tools that need more of the system than anybody can list. */
static const char permissive[] =
    "(version 1)\n"
    "(allow default)\n"
    "\n"
    "; other processes, and services that would start a program outside or give out secrets\n"
    "(deny signal)\n"
    "(allow signal (target same-sandbox))\n"
    "(deny appleevent-send)\n"
    "(deny job-creation)\n"
    "(deny mach-lookup\n"
    "  (global-name \"com.apple.coreservices.launchservicesd\")\n"
    "  (global-name \"com.apple.coreservices.quarantine-resolver\")\n"
    "  (global-name \"com.apple.coreservices.appleevents\")\n"
    "  (global-name \"com.apple.SecurityServer\")\n"
    "  (global-name \"com.apple.securityd.xpc\")\n"
    "  (global-name \"com.apple.pasteboard.1\")\n"
    "  (global-name \"com.apple.tccd\")\n"
    "  (global-name \"com.apple.tccd.system\"))\n"
    "\n"
    "(deny network*)\n"
    "(deny file-write*)\n";

const char *const sbpl_base[SBPL_LEVEL_COUNT] = {
    [SEATBELT_RESTRICTIVE] = restrictive,
    [SEATBELT_PERMISSIVE] = permissive,
};

const char sbpl_common[] =
    "\n"
    "; a second name or a clone of a file would be a way around every rule about its first name\n"
    "(deny file-link file-clone)\n"
    "\n"
    "; terminals and the usual devices\n"
    "(allow file-ioctl (regex \"^/dev/(tty|pty|ptmx)\"))\n"
    "(allow file-write*\n"
    "  (literal \"/dev/null\") (literal \"/dev/zero\") (literal \"/dev/stdout\")\n"
    "  (literal \"/dev/stderr\") (literal \"/dev/dtracehelper\") (literal \"/dev/ptmx\")\n"
    "  (regex \"^/dev/tty\") (subpath \"/dev/fd\"))\n";

/* Names are asked for over a socket; certificates and settings from services. */
const char sbpl_open[] =
    "(allow network-outbound\n"
    "  (remote ip \"*:*\")\n"
    "  (remote unix-socket (path-literal \"/private/var/run/mDNSResponder\")))\n"
    "(allow system-socket)\n"
    "(allow mach-lookup\n"
    "  (global-name \"com.apple.SystemConfiguration.configd\")\n"
    "  (global-name \"com.apple.SystemConfiguration.DNSConfiguration\")\n"
    "  (global-name \"com.apple.networkd\")\n"
    "  (global-name \"com.apple.trustd\")\n"
    "  (global-name \"com.apple.trustd.agent\"))\n";

const char sbpl_local_binding[] = "(allow network-bind (local ip \"localhost:*\"))\n"
                                  "(allow network-inbound (local ip \"localhost:*\"))\n"
                                  "(allow network-outbound (remote ip \"localhost:*\"))\n";

const struct sbpl_mac_rule sbpl_mac_rules[] = {
    {RULE_HIDE, "Library/Keychains", "keychains"},
    {RULE_HIDE, "Library/Cookies", "browser sessions"},
    {RULE_HIDE, "Library/Safari", "browser profile"},
    {RULE_HIDE, "Library/Containers/com.apple.Safari", "browser profile"},
    {RULE_HIDE, "Library/Application Support/Google/Chrome", "browser profile"},
    {RULE_HIDE, "Library/Application Support/Chromium", "browser profile"},
    {RULE_HIDE, "Library/Application Support/Firefox", "browser profile"},
    {RULE_HIDE, "Library/Application Support/BraveSoftware", "browser profile"},
    {RULE_HIDE, "Library/Application Support/Microsoft Edge", "browser profile"},
    {RULE_HIDE, "Library/Application Support/Arc", "browser profile"},
    {RULE_HIDE, "Library/Application Support/com.apple.TCC", "who may use camera and files"},
    {RULE_HIDE, "Library/Application Support/Code/User/globalStorage", "editor sessions"},
    {RULE_HIDE, "Library/Application Support/Cursor/User/globalStorage", "editor sessions"},
    {RULE_HIDE, "Library/Application Support/Slack", "messenger"},
    {RULE_HIDE, "Library/Application Support/Signal", "messenger"},
    {RULE_HIDE, "Library/Group Containers", "data of other programs"},
    {RULE_HIDE, "Library/Mail", "mail"},
    {RULE_HIDE, "Library/Messages", "messages"},
    {RULE_PROTECT, "Library/LaunchAgents", "started at login"},
    {RULE_PROTECT, "Library/Services", "programs behind menu entries"},
    {RULE_PROTECT, "Library/Preferences", "settings that name programs"},
    {0},
};
