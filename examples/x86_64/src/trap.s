// One stub a vector, 16 bytes apart: all enter trap_common with an error code (0 where the CPU pushes none) and the
// vector on the stack.
.section .text.trap, "ax"
.balign 16
.global trap_stubs
trap_stubs:
.set i, 0
.rept 256
  .balign 16
  .if (i == 8) || ((i >= 10) && (i <= 14)) || (i == 17) || (i == 21) || (i == 29) || (i == 30)
  .else
    push 0
  .endif
    push i
    jmp trap_common
  .set i, i + 1
.endr

.balign 16
trap_common:
    push rax
    push rcx
    push rdx
    push rbx
    push rbp
    push rsi
    push rdi
    push r8
    push r9
    push r10
    push r11
    push r12
    push r13
    push r14
    push r15
    mov rdi, rsp
    cld
    call trap_entry
    pop r15
    pop r14
    pop r13
    pop r12
    pop r11
    pop r10
    pop r9
    pop r8
    pop rdi
    pop rsi
    pop rbp
    pop rbx
    pop rdx
    pop rcx
    pop rax
    add rsp, 16
    iretq

// Accesses that may fault: rax:rdx = (0, value), or what the page-fault handler puts there.
.global probe_load, probe_load_access, probe_store, probe_store_access, probe_resume
probe_load:
probe_load_access:
    mov rdx, [rdi]
    xor eax, eax
    ret
probe_store:
probe_store_access:
    mov [rdi], rsi
    xor eax, eax
probe_resume:
    ret
