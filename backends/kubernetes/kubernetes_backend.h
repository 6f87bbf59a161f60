// Jobs on a Kubernetes cluster, by plain API objects:
//
//   api/         HTTP, the kubeconfig, credentials, watches, WebSockets
//   objects/     which objects a job is, and how their fields are read
//   render/      how they are made of a job
//   submission/  how they come into the cluster, are changed and go
//   status/      what they say of the job, and why it waits
//   logs/        of its Pods
//   connect/     exec, forwarded ports, TensorBoard
//   cluster/     nodes, claims, `check`
//
// The cluster is the record: nothing is kept here, and `get` on another machine sees the same job.
#pragma once

#include "backends/engine.h"

#include <memory>

namespace dtrain::kubernetes {

/// Reads the kubeconfig and connects when the cluster is first needed: plan() needs neither, but
/// for --gang without a scheduler.
std::unique_ptr<Backend> make_kubernetes_backend(const EngineAccess& access);

} // namespace dtrain::kubernetes
