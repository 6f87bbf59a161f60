// Jobs on a Kubernetes cluster, by plain API objects: see objects.h for which, render.h for how
// they are made, status.h for how they are read.
//
// The cluster is the record: nothing is kept here, and `get` on another machine sees the same job.
#pragma once

#include "backends/backend.h"

#include <memory>

namespace dtrain::kubernetes {

/// Reads the kubeconfig and connects when the cluster is first needed: render() needs neither.
std::unique_ptr<Backend> make_kubernetes_backend(const EngineAccess& access);

} // namespace dtrain::kubernetes
