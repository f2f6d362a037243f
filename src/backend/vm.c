/* vm: a kernel of its own for the command. QEMU runs as the command of a native session, so that
 * the session's view is all there is to export, and an escape from the guest ends in a sandbox. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "backend/guard.h"
#include "backend/registry.h"
#include "backend/vm.h"
#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/escape.h"
#include "core/file.h"
#include "core/path.h"
#include "engine/engine.h"

#define PRIVATE_PLACE "run/sandbox-vm"
#define PLACE         "/run/sandbox-vm" /* in the session: the machine's parts */
#define CONSOLE       "/tmp/.sandbox-vm"
#define DEFAULT_MB    1024ull
#define MINIMUM_MB    128ull /* a kernel of today does not start with less */
#define OVERHEAD_MB   512ull /* QEMU itself: translated code, devices */
#define MEGABYTE      (1024ull * 1024)

struct vm {
  const struct backend_request *request;
  struct vm_kernel kernel;
  char *qemu, *program; /* canonical: QEMU, and sandbox-vm */
  char *initramfs;      /* in the scratch folder */
  char *scratch;        /* made, and to be removed */
  int scratch_lock;
  bool kvm;
  struct plan plan; /* QEMU's */
  struct limit_set limits;
};

static void vm_clear(struct vm *vm) {
  vm_kernel_clear(&vm->kernel);
  vm->plan.landlock = (struct landlock_plan){0}; /* the request's */
  vm->plan.network.rules = NULL;
  plan_clear(&vm->plan);
  if (vm->scratch)
    guard_remove_scratch(vm->scratch);
  if (vm->scratch_lock >= 0)
    close(vm->scratch_lock);
  free(vm->qemu);
  free(vm->program);
  free(vm->initramfs);
  free(vm->scratch);
}

/* ---- programs ---- */

static char *resolve_executable(const char *path) {
  char *resolved = NULL;
  if (access(path, X_OK) < 0 || file_resolve(path, &resolved) < 0)
    return NULL;
  return resolved;
}

static char *find_qemu(void) {
  _cleanup_free_ char *path = tool_find("qemu-system-x86_64");
  return path ? resolve_executable(path) : NULL;
}

static int check_processor(struct sb_error *error) {
  struct utsname names;
  if (vm_knows_processor())
    return 0;
  const char *processor = uname(&names) < 0 ? "another" : names.machine;
  sb_fail(error, SB_CODE_UNSUPPORTED, 0,
          "its virtual machines are for x86_64 processors only, and this is %s", processor);
  return sb_hint(error, "use another back end: 'sandbox backends' lists them");
}

static int find_parts(struct vm *vm, struct sb_error *error) {
  if (check_processor(error) < 0)
    return -1;
  vm->qemu = find_qemu();
  if (!vm->qemu) {
    sb_fail(error, SB_CODE_NOT_FOUND, 0, "there is no program 'qemu-system-x86_64'");
    return sb_hint(error, "install it: apt install qemu-system-x86");
  }
  vm->program = tool_find_own("sandbox-vm");
  if (!vm->program) {
    sb_fail(error, SB_CODE_NOT_FOUND, 0,
            "'sandbox-vm' is neither beside the sandbox command nor in " SANDBOX_LIBEXEC);
    return sb_hint(error, "install the whole package: make install");
  }
  return vm_kernel_find(vm->request->policy, &vm->kernel, error);
}

/* ---- files of one run ---- */

static int make_scratch(struct vm *vm, struct sb_error *error) {
  const char *path = vm->request->scratch;
  _cleanup_free_ char *parent = path_parent(path), *shown = escape_string(path);
  int result = file_private_folder(parent);
  if (result < 0)
    return sb_fail(error, SB_CODE_SYSTEM, -result, "making the folder for '%s'", shown);
  if (mkdir(path, 0700) < 0)
    return sb_fail_errno(error, "making the folder '%s'", shown);
  vm->scratch = xstrdup(path);
  /* Whoever finds it unlocked knows that we are gone, and removes it. */
  vm->scratch_lock = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
  if (vm->scratch_lock >= 0)
    (void)flock(vm->scratch_lock, LOCK_SH);
  return 0;
}

static int write_archive(struct vm *vm, struct sb_error *error) {
  _cleanup_text_ struct text archive = {0};
  if (vm_make_archive(vm->request, &vm->kernel, vm->program, &archive, error) < 0 ||
      make_scratch(vm, error) < 0)
    return -1;
  vm->initramfs = path_join(vm->scratch, "initramfs");
  _cleanup_free_ char *shown = escape_string(vm->initramfs);
  _cleanup_close_ int fd =
      open(vm->initramfs, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  int result = fd < 0 ? -errno : file_write_all(fd, archive.data, archive.length);
  return result < 0 ? sb_fail(error, SB_CODE_SYSTEM, -result, "writing '%s'", shown) : 0;
}

/* ---- QEMU's session ---- */

static void copy_operations(struct plan *plan, const struct plan *from, size_t first, size_t end) {
  for (size_t i = first; i < end; i++) {
    const struct operation *old = &from->operations[i];
    struct operation *new = plan_add(plan, old->kind, old->path, old->source, NULL);
    new->flags = old->flags;
    new->mode = old->mode;
    new->upper = old->upper ? xstrdup(old->upper) : NULL;
    new->text = old->text ? xstrdup(old->text) : NULL;
    new->why = old->why ? xstrdup(old->why) : NULL;
  }
}

/* Everything of the session's own view, and the machine's parts at names of their own. */
static void plan_view(struct vm *vm) {
  const struct plan *from = vm->request->plan;
  const char *const parts[][2] = {
      {"program", vm->program}, {"kernel", vm->kernel.image}, {"initramfs", vm->initramfs}};
  struct plan *plan = &vm->plan;
  copy_operations(plan, from, 0, from->base_count);
  plan->base_count = from->base_count;
  plan_add(plan, OPERATION_PRIVATE_FOLDER, PRIVATE_PLACE, PRIVATE_PLACE, NULL)->mode = 0755;
  for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
    _cleanup_free_ char *name = path_join(PLACE, parts[i][0]);
    plan_add(plan, OPERATION_PRIVATE_FILE, name + 1, name + 1, NULL)->mode = 0600;
  }
  if (vm->kvm)
    plan_add(plan, OPERATION_PRIVATE_FILE, "dev/kvm", "dev/kvm", NULL)->mode = 0600;
  copy_operations(plan, from, from->base_count, from->operation_count);
  for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
    _cleanup_free_ char *name = path_join(PLACE, parts[i][0]);
    plan_add(plan, OPERATION_READONLY, name, parts[i][1], "a part of the virtual machine");
  }
  if (vm->kvm)
    plan_add(plan, OPERATION_DEVICE, "/dev/kvm", NULL, "the virtual machine's processor");
}

static unsigned long long guest_memory_mb(const struct vm *vm) {
  unsigned long long limit = vm->request->limits->value[LIMIT_MEMORY] / MEGABYTE;
  return limit ? limit : DEFAULT_MB;
}

/* As many as the limit needs. More than one only if they are real: emulated ones wait for each
 * other. */
static unsigned processor_count(const struct vm *vm) {
  uint64_t limit = vm->request->limits->value[LIMIT_CPU];
  unsigned most = (unsigned)get_nprocs();
  unsigned wanted = limit ? (unsigned)((limit + 999999999) / 1000000000) : most;
  return wanted < most ? wanted : most;
}

static void plan_command(struct vm *vm) {
  _cleanup_strv_ struct strv forwards = {0};
  vm_publish(&vm->request->plan->publish, &vm->plan.publish, &forwards);
  const struct vm_machine machine = {
      .qemu = vm->qemu,
      .kernel = PLACE "/kernel",
      .initramfs = PLACE "/initramfs",
      .console = CONSOLE,
      .memory_mb = guest_memory_mb(vm),
      .network = vm_has_network(vm->request->plan),
      .forwards = &forwards,
  };
  struct strv *words = &vm->plan.arguments;
  strv_add(words, PLACE "/program");
  if (vm->kvm)
    strv_addf(words, "kvm:%u,tcg:1", processor_count(vm));
  else
    strv_add(words, "tcg:1");
  strv_add(words, CONSOLE);
  vm_machine_words(&machine, words);
  strv_add(&vm->plan.executables, words->items[0]);
  strv_add(&vm->plan.script_arguments, "sh");
  strv_add(&vm->plan.script_arguments, "");
  strv_add(&vm->plan.environment, "PATH=/usr/bin:/bin");
}

static void plan_settings(struct vm *vm) {
  const struct plan *from = vm->request->plan;
  struct plan *plan = &vm->plan;
  plan->working_folder = xstrdup("/");
  plan->hostname = xstrdup(from->hostname);
  plan->seccomp = from->seccomp;
  plan->landlock = from->landlock;
  plan->network = from->network;
  plan->terminal = from->terminal;
}

static const enum limit_kind guest_limits[] = {LIMIT_PROCESSES, LIMIT_OPEN_FILES, LIMIT_FILE_SIZE};

/* What the guest holds by itself must not hold QEMU, and QEMU needs memory of its own. */
static void set_limits(struct vm *vm) {
  vm->limits = *vm->request->limits;
  for (size_t i = 0; i < ARRAY_SIZE(guest_limits); i++)
    vm->limits.value[guest_limits[i]] = 0;
  if (vm->limits.value[LIMIT_MEMORY])
    vm->limits.value[LIMIT_MEMORY] += OVERHEAD_MB * MEGABYTE;
}

static void plan_session(struct vm *vm) {
  plan_view(vm);
  plan_command(vm);
  plan_settings(vm);
  set_limits(vm);
}

static int check_memory(const struct vm *vm, struct sb_error *error) {
  if (guest_memory_mb(vm) >= MINIMUM_MB)
    return 0;
  sb_fail(error, SB_CODE_UNSUPPORTED, 0, "a virtual machine does not start with %llu MB of memory",
          guest_memory_mb(vm));
  return sb_hint(error, "allow at least --memory %lluM", MINIMUM_MB);
}

static int check_network(const struct vm *vm, struct sb_error *error) {
  if (!vm_has_network(vm->request->plan) || vm_can_network(vm->qemu))
    return 0;
  sb_fail(error, SB_CODE_UNSUPPORTED, 0, "this QEMU was built without its user mode network");
  return sb_hint(error, "install the qemu-system-x86 of Debian, or run without a network");
}

/* ---- running ---- */

/* Once it runs, nothing needs the files' names any more: what is gone already cannot be left. */
static void hear(void *context, const struct session_notice *notice) {
  struct vm *vm = context;
  if (notice->event == SESSION_STARTED && vm->scratch)
    guard_remove_scratch(vm->scratch);
  if (vm->request->listener)
    vm->request->listener(vm->request->listener_context, notice);
}

static int already_compiled(void *context, struct sb_error *error) {
  (void)context;
  (void)error;
  return 0;
}

static int run_session(struct vm *vm, struct session_result *ret_result, struct sb_error *error) {
  const struct backend_request *request = vm->request;
  static const struct strv nothing = {0};
  struct start_report *report = engine_report_new();
  if (!report)
    return sb_fail_errno(error, "allocating the start report");
  struct session_request session = {
      .host = request->host,
      .plan = &vm->plan,
      .compile = already_compiled,
      .watched = &nothing,
      .terminal = request->terminal,
      .session_id = request->session_id,
      .mode = "static",
      .backend = vm_backend.name,
      .command = &request->plan->arguments,
      .limits = &vm->limits,
      .best_effort_limits = request->weaken,
      .capture = request->capture,
      .capture_limit = request->capture_limit,
      .log = request->log,
      .report = report,
      .ready_fd = -1,
      .listener = hear,
      .listener_context = vm,
  };
  int result = session_run(&session, ret_result, error);
  for (size_t i = 0; i < ARRAY_SIZE(guest_limits); i++)
    ret_result->enforcers[guest_limits[i]] = ENFORCER_BACKEND;
  return result;
}

static int prepare(struct vm *vm, struct sb_error *error) {
  if (check_memory(vm, error) < 0 || find_parts(vm, error) < 0 || check_network(vm, error) < 0)
    return -1;
  vm->kvm = vm_kvm_works();
  if (write_archive(vm, error) < 0)
    return -1;
  plan_session(vm);
  return 0;
}

static int run(const struct backend_request *request, struct session_result *ret_result,
               struct sb_error *error) {
  struct vm vm = {.request = request, .scratch_lock = -1};
  int result = prepare(&vm, error);
  if (result == 0)
    result = run_session(&vm, ret_result, error);
  vm_clear(&vm);
  return result;
}

/* ---- probe ---- */

static void probe(const struct host_context *host, const struct policy *policy,
                  struct backend_status *status) {
  _cleanup_error_ struct sb_error error = {0};
  _cleanup_backend_status_ struct backend_status native = {0};
  struct vm vm = {.request = &(struct backend_request){.host = host, .policy = policy},
                  .scratch_lock = -1};
  backend_probe(&native_backend, host, policy, 0, true, &native);
  if (!native.available)
    backend_missing(status, native.fix, "it runs QEMU in a native sandbox, and %s", native.why);
  else if (find_parts(&vm, &error) < 0)
    backend_missing(status, error.hint, "%s", error.message);
  else
    backend_available(status, "kernel %s, %s", vm.kernel.release,
                      vm_kvm_works() ? "KVM" : "emulated (no usable KVM)");
  if (!status->quick && vm.qemu && !vm_can_network(vm.qemu))
    status->features &= ~(FEATURE(NETWORK_FILTERED) | FEATURE(NETWORK_FULL) | FEATURE(PUBLISH));
  status->features &= native.features;
  vm_clear(&vm);
}

/* ---- words for others ---- */

/* No command line makes a session of ours; bubblewrap's view of the same plan is next to it. The
 * relay is ours alone. */
static int check_words(const struct backend_request *request, struct sb_error *error) {
  if (vm_has_network(request->plan)) {
    sb_fail(error, SB_CODE_UNSUPPORTED, 0,
            "the words for vm would have no network: its relay belongs to 'sandbox run'");
    return sb_hint(error, "use 'sandbox run --backend vm', or wrap without a network");
  }
  if (!limit_set_is_empty(
          &(struct limit_set){.value =
                                  {
                                      [LIMIT_CPU] = request->limits->value[LIMIT_CPU],
                                      [LIMIT_TIME] = request->limits->value[LIMIT_TIME],
                                      [LIMIT_DISK] = request->limits->value[LIMIT_DISK],
                                      [LIMIT_IO] = request->limits->value[LIMIT_IO],
                                  }}) &&
      !request->weaken) {
    sb_fail(error, SB_CODE_UNSUPPORTED, 0,
            "the words for vm would not hold limits of processor, time, disk or io");
    return sb_hint(error, "use 'sandbox run --backend vm', or accept the loss with --weaken");
  }
  return 0;
}

static int wrap_machine(struct vm *vm, struct wrapped *ret, struct sb_error *error) {
  _cleanup_text_ struct text archive = {0};
  const struct backend_request *request = vm->request;
  if (check_memory(vm, error) < 0 || find_parts(vm, error) < 0 ||
      vm_make_archive(request, &vm->kernel, vm->program, &archive, error) < 0)
    return -1;
  vm->kvm = vm_kvm_works();
  vm->initramfs = path_join(request->scratch, "initramfs");
  plan_session(vm);
  struct backend_request inner = *request;
  inner.plan = &vm->plan;
  inner.limits = &vm->limits;
  if (bwrap_backend.wrap(&inner, ret, error) < 0)
    return sb_hint(error, "install bubblewrap, whose words run QEMU; or use 'sandbox run "
                          "--backend vm'");
  wrapped_add_folder(ret, request->scratch);
  wrapped_add_file(ret, vm->initramfs, archive.data, archive.length);
  return 0;
}

static int wrap(const struct backend_request *request, struct wrapped *ret,
                struct sb_error *error) {
  struct vm vm = {.request = request, .scratch_lock = -1};
  int result = check_words(request, error);
  if (result == 0)
    result = wrap_machine(&vm, ret, error);
  vm_clear(&vm);
  return result;
}

const struct backend vm_backend = {
    .name = "vm",
    .summary = "a virtual machine with a kernel of its own, by QEMU in a native sandbox",
    .features = FEATURE(READ_ALL) | FEATURE(HIDE) | FEATURE(HIDE_IN_WRITABLE) | FEATURE(PROTECT) |
                FEATURE(PROTECT_LINKS) | FEATURE(RESERVE) | FEATURE(READONLY_IN_WRITABLE) |
                FEATURE(OVERLAY) | FEATURE(NETWORK_NONE) | FEATURE(NETWORK_FILTERED) |
                FEATURE(NETWORK_FULL) | FEATURE(PUBLISH) | FEATURE(LIMIT_MEMORY) |
                FEATURE(LIMIT_CPU) | FEATURE(LIMIT_PROCESSES) | FEATURE(LIMIT_DISK) |
                FEATURE(LIMIT_IO) | FEATURE(LIMIT_FILES) | FEATURE(LIMIT_TIME) |
                FEATURE(SYSCALL_FILTER) | FEATURE(PRIVATE_TMP) | FEATURE(PROCESS_ISOLATION) |
                FEATURE(SIGNAL_ISOLATION) | FEATURE(METADATA),
    .never_chosen = true,
    .probe = probe,
    .wrap = wrap,
    .run = run,
    .keeps_log = true,
};
