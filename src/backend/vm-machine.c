/* QEMU's words, and whether KVM can be used. */
#include <fcntl.h>
#include <linux/kvm.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "backend/vm.h"
#include "core/cleanup.h"

/* Nothing that costs an emulated processor time and protects only against other guests. */
static const char kernel_words[] =
    "console=ttyS0 quiet loglevel=3 panic=-1 mitigations=off tsc=reliable no_timer_check "
    "cryptomgr.notests random.trust_cpu=on";

/* Without a ROM to boot from: the guest has its kernel, and reading one costs time. */
static void add_network(const struct vm_machine *machine, struct strv *ret_words) {
  _cleanup_text_ struct text device = {0};
  if (!machine->network) {
    strv_add(ret_words, "-nic");
    strv_add(ret_words, "none");
    return;
  }
  text_append(&device, "user,id=net");
  for (size_t i = 0; machine->forwards && i < machine->forwards->count; i++) {
    const char *forward = machine->forwards->items[i];
    int first = (int)strcspn(forward, "-");
    text_appendf(&device, ",hostfwd=tcp:127.0.0.1:%.*s-127.0.0.1:%s", first, forward,
                 forward + first + 1);
  }
  strv_add(ret_words, "-netdev");
  strv_add(ret_words, text_string(&device));
  strv_add(ret_words, "-device");
  strv_add(ret_words, "virtio-net-pci,netdev=net,romfile=");
}

void vm_machine_words(const struct vm_machine *machine, struct strv *ret_words) {
  static const char *const fixed[] = {
      "-M", "q35", "-cpu", "max", "-nodefaults", "-no-user-config", "-display", "none",
      "-no-reboot", "-device", "virtio-serial-pci",
      /* Twice the same view: once cached, once for what may be written. */
      "-fsdev", "local,id=root,path=/,security_model=none,readonly=on,multidevs=remap", "-device",
      "virtio-9p-pci,fsdev=root,mount_tag=sandbox-root", "-fsdev",
      "local,id=write,path=/,security_model=none,multidevs=remap", "-device",
      "virtio-9p-pci,fsdev=write,mount_tag=sandbox-write", NULL};
  strv_add(ret_words, machine->qemu);
  for (const char *const *word = fixed; *word; word++)
    strv_add(ret_words, *word);
  const char *const named[][2] = {
      {"-kernel", machine->kernel}, {"-initrd", machine->initramfs}, {"-append", kernel_words}};
  for (size_t i = 0; i < ARRAY_SIZE(named); i++) {
    strv_add(ret_words, named[i][0]);
    strv_add(ret_words, named[i][1]);
  }
  strv_add(ret_words, "-serial");
  strv_addf(ret_words, "file:%s", machine->console);
  strv_add(ret_words, "-m");
  strv_addf(ret_words, "%llu", machine->memory_mb);
  add_network(machine, ret_words);
}

/* ---- the processor ---- */

#if defined(__x86_64__)
bool vm_knows_processor(void) {
  return true;
}

/* In real mode: `mov $'s', %al; out %al, $0x10; hlt`. */
static const uint8_t program[] = {0xb0, 's', 0xe6, 0x10, 0xf4};

static bool set_registers(int processor) {
  struct kvm_sregs segments;
  struct kvm_regs registers = {.rip = 0, .rflags = 2};
  if (ioctl(processor, KVM_GET_SREGS, &segments) < 0)
    return false;
  segments.cs.base = segments.cs.selector = 0;
  return ioctl(processor, KVM_SET_SREGS, &segments) == 0 &&
         ioctl(processor, KVM_SET_REGS, &registers) == 0;
}

/* It must say its letter and then halt; on some machines everything works but this. */
static bool runs_program(int processor, const struct kvm_run *run) {
  if (ioctl(processor, KVM_RUN, 0) < 0 || run->exit_reason != KVM_EXIT_IO ||
      ((const char *)run)[run->io.data_offset] != 's')
    return false;
  return ioctl(processor, KVM_RUN, 0) == 0 && run->exit_reason == KVM_EXIT_HLT;
}

static bool try_machine(int kvm, int machine, uint8_t *memory) {
  struct kvm_userspace_memory_region region = {.memory_size = 4096,
                                               .userspace_addr = (uintptr_t)memory};
  int size = ioctl(kvm, KVM_GET_VCPU_MMAP_SIZE, 0);
  _cleanup_close_ int processor =
      size > 0 && ioctl(machine, KVM_SET_USER_MEMORY_REGION, &region) == 0
          ? ioctl(machine, KVM_CREATE_VCPU, 0)
          : -1;
  if (processor < 0)
    return false;
  void *run = mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE, MAP_SHARED, processor, 0);
  if (run == MAP_FAILED)
    return false;
  bool works = set_registers(processor) && runs_program(processor, run);
  munmap(run, (size_t)size);
  return works;
}

bool vm_kvm_works(void) {
  _cleanup_close_ int kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC);
  _cleanup_close_ int machine = kvm >= 0 && ioctl(kvm, KVM_GET_API_VERSION, 0) == KVM_API_VERSION
                                    ? ioctl(kvm, KVM_CREATE_VM, 0)
                                    : -1;
  if (machine < 0)
    return false;
  uint8_t *memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    return false;
  memcpy(memory, program, sizeof program);
  bool works = try_machine(kvm, machine, memory);
  munmap(memory, 4096);
  return works;
}
#else
/* q35 and its serial line, the words for the kernel and the program above are x86's. */
bool vm_knows_processor(void) {
  return false;
}

bool vm_kvm_works(void) {
  return false;
}
#endif
