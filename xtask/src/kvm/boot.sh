# Boots guests under KVM, each virtual CPU on the CPUs it is told, and prints what the guest and KVM's tracepoints say.
# The same in the emulated machine and on a host. The caller sets QEMU, TRACING (tracefs) and WORK (an empty directory).

# boot NAME SECONDS THREADS QEMU-ARGUMENT...: THREADS has CPU:MASK for each virtual CPU, separated by commas.
boot() {
    name=$1 seconds=$2 threads=$3
    shift 3
    echo "#begin $name"
    trace=$TRACING/instances/shootdown
    mkdir -p "$trace"
    echo 0 > "$trace/tracing_on"
    echo > "$trace/trace"
    echo > "$trace/set_event_pid"
    echo 8192 > "$trace/buffer_size_kb"
    # An entry without a flush says nothing, and there are many.
    echo 'need_flush_tlb == 1' > "$trace/events/kvm/kvm_pv_tlb_flush/filter"
    for event in kvm_pv_tlb_flush kvm_hv_hypercall kvm_hv_flush_tlb kvm_hv_flush_tlb_ex; do
        echo 1 > "$trace/events/kvm/$event/enable"
    done
    rm -f "$WORK"/*
    mkfifo "$WORK/monitor.in" "$WORK/monitor.out"

    # The guest does not run before its threads are where they belong.
    timeout -s KILL "$seconds" "$QEMU" -S -name guest,debug-threads=on -debugcon "file:$WORK/guest" \
        -pidfile "$WORK/pid" -chardev "pipe,id=monitor,path=$WORK/monitor" -mon chardev=monitor \
        "$@" 2> "$WORK/errors" &
    job=$!
    for thread in $(echo "$threads" | tr , ' '); do
        pin "CPU ${thread%:*}/KVM" "${thread#*:}" || break
    done
    echo 1 > "$trace/tracing_on"
    # Read and write: this does not wait for QEMU, which may be gone.
    echo cont 1<> "$WORK/monitor.in"
    wait $job
    echo "#status $?"
    echo 0 > "$trace/tracing_on"
    cat "$WORK/guest" 2> /dev/null
    sed 's/^/#error /' "$WORK/errors"
    grep -v '^#' "$trace/trace" | sed 's/^.*: \(kvm_[a-z_]*: \)/#trace \1/' | sort | uniq -c \
        | sed 's/^ *\([0-9]*\) #trace /#trace \1 /'
    echo "#lost $(cat "$trace"/per_cpu/cpu*/stats | awk '/^(overrun|commit overrun|dropped events):/ { n += $NF } END { print n + 0 }')"
    rmdir "$trace"
    echo "#end $name"
}

# pin THREAD-NAME MASK: waits for the thread of QEMU, has its events traced, and binds it.
pin() {
    tries=100
    while [ $tries -gt 0 ]; do
        for task in "/proc/$(cat "$WORK/pid" 2> /dev/null)/task"/*; do
            if [ "$(cat "$task/comm" 2> /dev/null)" = "$1" ]; then
                echo "${task##*/}" >> "$trace/set_event_pid"
                taskset -p "$2" "${task##*/}" > /dev/null && return
            fi
        done
        # It ends early if it does not like its arguments.
        ! grep -qv warning: "$WORK/errors" 2> /dev/null || break
        tries=$((tries - 1))
        sleep 0.1
    done
    echo "#error thread $1 could not be bound"
    return 1
}
