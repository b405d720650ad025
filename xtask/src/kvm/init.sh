#!/bin/busybox sh
# The first process of the emulated machine: loads KVM, runs /run.sh, and turns the machine off.
# The console is the second serial port; what is to be judged goes to the first one, undisturbed by the kernel.
/bin/busybox --install -s /bin
export PATH=/bin:/usr/bin
mount -t proc none /proc
mount -t sysfs none /sys
mount -t devtmpfs none /dev
mount -t tracefs none /sys/kernel/tracing
exec > /dev/ttyS0 2>&1
stty -opost
for module in /modules/*; do
    insmod "$module" || echo "#error $module was not loaded"
done
echo "#ready $(cut -d ' ' -f 1 /proc/uptime)"
. /run.sh
echo "#done $(cut -d ' ' -f 1 /proc/uptime)"
sync
poweroff -f
