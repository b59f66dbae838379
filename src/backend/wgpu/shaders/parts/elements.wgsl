// For kernels with a thread per element. A grid has at most 65535 workgroups along an axis, so it is folded: y counts
// full rows of x.

const ELEMENT_THREADS: u32 = 256u;

struct Place {
    @builtin(local_invocation_index) thread: u32,
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
}

fn element(place: Place) -> u32 {
    return (place.group.y * place.groups.x + place.group.x) * ELEMENT_THREADS + place.thread;
}
