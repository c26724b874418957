# Sets up the namespaces of a machine from inside: machine.sh BRIDGE ADDRESS SERVICES READY FIRST
set -eu
bridge=$1 address=$2 services=$3 ready=$4 first=$5

# Programs write where they always do, and the host sees none of it: sockets and named networks below /run,
# what network plugins and the kubelet keep below /var/lib, links to the logs of pods below /var/log.
mount -t tmpfs -o mode=755 outbox /run
for folder in /var/lib /var/log; do
    layers=/run/layers$folder
    mkdir -p "$layers/upper" "$layers/work"
    mount -t overlay -o "lowerdir=$folder,upperdir=$layers/upper,workdir=$layers/work" outbox "$folder"
done

# A kubelet sets these for the whole kernel; it may set copies.
for setting in vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops \
    kernel/keys/root_maxkeys kernel/keys/root_maxbytes; do
    copy=/run/settings/$setting
    mkdir -p "$(dirname "$copy")"
    cat "/proc/sys/$setting" >"$copy"
    mount --bind "$copy" "/proc/sys/$setting"
done
# Pods may ask to see what is mounted later.
mount --make-rshared /

ip link set lo up
ip link add "$bridge" type bridge
ip address add "$address" dev "$bridge"
ip link set "$bridge" up
# Without a route there is no packet that kube-proxy's rules could turn to a pod.
ip route add "$services" dev "$bridge"
echo 1 >/proc/sys/net/ipv4/ip_forward

: >"$ready"
exec "$first"
