#include "backends/kubernetes/render/pod_roles.h"

#include "backends/kubernetes/own_fields.h"

namespace dtrain::kubernetes {

std::vector<PodRole> pod_roles(const JobSpec& job) {
  std::vector<PodRole> roles;
  for (Role& role : job_roles(job)) {
    const std::string name = role.name == k_master ? k_worker : role.name;
    const auto own_or = [&]<class Value>(const char* part, const Value& of_job) -> Value {
      const std::string key = name + part;
      const Value& own = Member<Value>{.key = key}(job);
      return own == Value() ? of_job : own;
    };
    const std::string none;
    PodRole pod;
    static_cast<Role&>(pod) = std::move(role);
    pod.image = own_or("Image", job.image);
    pod.cpu = own_or("Cpu", job.cpu);
    pod.memory = own_or("Memory", job.memory);
    if (name == k_worker) { // These two are not Kubernetes' alone.
      pod.cpu = job.worker_cpu.empty() ? pod.cpu : job.worker_cpu;
      pod.memory = job.worker_memory.empty() ? pod.memory : job.worker_memory;
    }
    pod.cpu_limit = own_or("CpuLimit", none);
    pod.memory_limit = own_or("MemoryLimit", none);
    pod.selectors = own_or("Selectors", own::selectors(job));
    pod.annotations = own::annotations(job);
    const auto more = own_or("Annotations", std::vector<std::string>());
    pod.annotations.insert(pod.annotations.end(), more.begin(), more.end());
    pod.port = own_or("Port", 0);
    roles.push_back(std::move(pod));
  }
  if (find_job_type(job.type)->has_tasks) {
    for (std::size_t i = 0; i < roles.size(); ++i) {
      roles[i].image = job.task_images[i];
    }
  }
  return roles;
}

void settle_image(JobSpec& job) {
  for (const own::Text image : {own::worker_image, own::ps_image}) {
    job.image = job.image.empty() ? image(job) : job.image;
  }
}

} // namespace dtrain::kubernetes
