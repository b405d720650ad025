// Entry of the boot CPU: 32-bit protected mode, no paging, ebx = the loader's hvm_start_info.
.section .note.pvh, "a", @note
.balign 4
.long 4, 8, 18                  // name length, descriptor length, XEN_ELFNOTE_PHYS32_ENTRY
.asciz "Xen"
.quad pvh_start

.section .text.boot, "ax"
.code32
.global pvh_start
pvh_start:
    cli
    cld
    mov esp, offset boot_stack_top
    mov edi, ebx
    lgdt [boot_gdt_pointer]
    mov eax, 0x20               // CR4.PAE
    mov cr4, eax
    mov eax, offset boot_pml4
    mov cr3, eax
    mov ecx, 0xc0000080         // EFER
    rdmsr
    or eax, 0x900               // LME, NXE
    wrmsr
    mov eax, 0x80010033         // PG, WP, NE, ET, MP, PE; CD and NW clear
    mov cr0, eax
    push 0x08
    mov eax, offset boot_long_mode
    push eax
    retf
.code64
boot_long_mode:
    mov eax, 0x10
    mov ds, eax
    mov es, eax
    mov ss, eax
    mov esp, offset boot_stack_top
    mov edi, edi                // start_info is below 4 GiB
    call boot_cpu_main
    ud2

// Entry of the other CPUs, copied to TRAMPOLINE (a page below 1 MiB): real mode, straight to long mode.
.set TRAMPOLINE, 0x8000
.code16
.balign 16
.global trampoline_start, trampoline_end
trampoline_start:
    jmp 1f
.org trampoline_start + 8
    .short boot_gdt_end - boot_gdt - 1
    .long boot_gdt
.org trampoline_start + 16
    .long boot_pml4
1:  cli
    cld
    xor eax, eax
    mov ds, ax
    lgdt [TRAMPOLINE + 8]
    mov eax, 0x20
    mov cr4, eax
    mov eax, [TRAMPOLINE + 16]
    mov cr3, eax
    mov ecx, 0xc0000080
    rdmsr
    or eax, 0x900
    wrmsr
    mov eax, 0x80010033
    mov cr0, eax
    .byte 0x66, 0xea            // far jump, 32-bit offset
    .long TRAMPOLINE + (trampoline_long_mode - trampoline_start)
    .short 0x08
.code64
trampoline_long_mode:
    mov eax, 0x10
    mov ds, eax
    mov es, eax
    mov ss, eax
    mov eax, offset application_cpu_start   // absolute: this code does not run where it was linked
    jmp rax
trampoline_end:

// Numbers the CPUs in the order in which they come, and gives each a stack.
application_cpu_start:
    mov edi, 1
    lock xadd [next_cpu], edi
    cmp edi, {max_cpus}
    jae 2f
    mov eax, edi
    imul rax, rax, {stack_size}
    lea rsp, [boot_stack + rax + {stack_size}]
    call application_cpu_main
    ud2
2:  hlt
    jmp 2b

.section .data.boot, "aw"
.balign 8
boot_gdt:
    .quad 0, 0x00af9b000000ffff, 0x00cf93000000ffff
boot_gdt_end:
boot_gdt_pointer:
    .short boot_gdt_end - boot_gdt - 1
    .long boot_gdt
.balign 4
.global next_cpu
next_cpu: .long 1

// The low 4 GiB, identity mapped with global 2 MiB pages; uncached from 3 GiB on, where devices are.
.balign 4096
.global boot_pml4
boot_pml4:
    .quad boot_pdpt + 3
    .fill 255, 8, 0
    .quad window_pdpt + 3       // the kernel's own mappings under test
    .fill 255, 8, 0
boot_pdpt:
    .quad boot_pd + 3, boot_pd + 0x1003, boot_pd + 0x2003, boot_pd + 0x3003
    .fill 508, 8, 0
boot_pd:
.set i, 0
.rept 2048
  .if i >= 1536
    .quad (i << 21) + 0x19b
  .else
    .quad (i << 21) + 0x183
  .endif
  .set i, i + 1
.endr

.section .bss.boot, "aw", @nobits
.balign 4096
.global window_pdpt
window_pdpt: .skip 4096
.balign 4096
boot_stack: .skip {max_cpus} * {stack_size}
.set boot_stack_top, boot_stack + {stack_size}
