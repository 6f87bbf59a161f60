#include "trainer/device/cuda/memory/paged_memory.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include <cuda.h>
#include <cuda_runtime.h>

#include "trainer/device/cuda/errors.h"

namespace trainer {

/// The driver's functions, found by CUDA's runtime: nothing is linked with libcuda.
struct PagedMemory::Driver {
  decltype(&cuDeviceGetAttribute) attribute;
  decltype(&cuDeviceCanAccessPeer) can_access;
  decltype(&cuMemGetAllocationGranularity) granularity;
  decltype(&cuMemAddressReserve) reserve;
  decltype(&cuMemAddressFree) free;
  decltype(&cuMemCreate) create;
  decltype(&cuMemRelease) release;
  decltype(&cuMemMap) map;
  decltype(&cuMemUnmap) unmap;
  decltype(&cuMemSetAccess) set_access;
  bool is_whole = true;

  Driver() {
    find(attribute, "cuDeviceGetAttribute");
    find(can_access, "cuDeviceCanAccessPeer");
    find(granularity, "cuMemGetAllocationGranularity");
    find(reserve, "cuMemAddressReserve");
    find(free, "cuMemAddressFree");
    find(create, "cuMemCreate");
    find(release, "cuMemRelease");
    find(map, "cuMemMap");
    find(unmap, "cuMemUnmap");
    find(set_access, "cuMemSetAccess");
  }

 private:
  template <typename Function>
  void find(Function& function, const char* name) {
    constexpr unsigned k_version = 12000; // Whose signatures these are.
    void* found = nullptr;
    const cudaError_t error =
        cudaGetDriverEntryPointByVersion(name, &found, k_version, cudaEnableDefault, nullptr);
    function = reinterpret_cast<Function>(found);
    is_whole = is_whole && error == cudaSuccess && found != nullptr;
  }
};

namespace {

CUmemAllocationProp memory_of(int gpu) {
  CUmemAllocationProp kind{};
  kind.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  kind.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  kind.location.id = gpu;
  return kind;
}

CUdeviceptr address(const std::byte* at) { return reinterpret_cast<CUdeviceptr>(at); }

/// GPUs that this process has opened.
struct Opened {
  std::mutex mutex;
  std::multiset<int> gpus;
};
Opened& opened() {
  static Opened one;
  return one;
}

} // namespace

std::unique_ptr<PagedMemory> PagedMemory::make(GpuMemory& memory, Stream& stream) {
  static const Driver driver;
  int has_it = 0;
  const CUmemAllocationProp kind = memory_of(memory.gpu());
  std::size_t page = 0;
  if (!driver.is_whole ||
      driver.attribute(&has_it, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
                       memory.gpu()) != CUDA_SUCCESS ||
      has_it == 0 ||
      driver.granularity(&page, &kind, CU_MEM_ALLOC_GRANULARITY_MINIMUM) != CUDA_SUCCESS ||
      page == 0) {
    return nullptr;
  }
  return std::unique_ptr<PagedMemory>(new PagedMemory(memory, stream, driver, page));
}

PagedMemory::PagedMemory(GpuMemory& memory, Stream& stream, const Driver& driver, std::size_t page)
    : gpu_(memory.gpu()), memory_(memory), stream_(stream), driver_(driver), page_(page) {
  memory_.set_trim([this] { trim(); });
  const std::lock_guard lock(opened().mutex);
  opened().gpus.insert(gpu_);
}

PagedMemory::~PagedMemory() {
  memory_.set_trim(nullptr);
  for (const Handle handle : free_) {
    driver_.release(handle);
  }
  const std::lock_guard lock(opened().mutex);
  opened().gpus.erase(opened().gpus.find(gpu_));
}

void* PagedMemory::reserve(std::size_t bytes) {
  const std::size_t pages = (bytes + page_ - 1) / page_;
  CUdeviceptr at = 0;
  check_cuda(driver_.reserve(&at, pages * page_, 0, 0, 0), "reserving addresses");
  auto* const first = reinterpret_cast<std::byte*>(at); // NOLINT(*-no-int-to-ptr): the driver's
  const std::lock_guard lock(mutex_);
  regions_[first] = {first, pages * page_, std::vector<Page>(pages), {}};
  note_memory(first, pages * page_);
  return first;
}

void PagedMemory::free(void* memory) {
  cudaSetDevice(gpu_);
  cudaDeviceSynchronize(); // NCCL's streams may be at it, too.
  const std::lock_guard lock(mutex_);
  const auto it = regions_.find(static_cast<const std::byte*>(memory));
  Region& region = it->second;
  idle_.remove_if([&](const Place& place) { return place.region == &region; });
  for (std::size_t page = 0; page < region.pages.size(); ++page) {
    if (region.pages[page].state != Page::State::unmapped) {
      driver_.unmap(address(region.first + page * page_), page_);
      release(region.pages[page].handle);
    }
  }
  forget_memory(region.first);
  driver_.free(address(region.first), region.bytes);
  regions_.erase(it);
}

PagedMemory::Region* PagedMemory::find(const void* at) {
  const auto* byte = static_cast<const std::byte*>(at);
  auto it = regions_.upper_bound(byte);
  if (it == regions_.begin()) {
    return nullptr;
  }
  Region& region = (--it)->second;
  return byte < region.first + region.bytes ? &region : nullptr;
}

void PagedMemory::release(Handle handle) {
  driver_.release(handle);
  memory_.add(-static_cast<std::ptrdiff_t>(page_));
}

/// Waits until the work on an idle page is done.
PagedMemory::Handle PagedMemory::unmap(const Place& place) {
  Page& page = place.region->pages[place.page];
  page.done->wait();
  check_cuda(driver_.unmap(address(place.region->first + place.page * page_), page_),
             "unmapping memory");
  const Handle handle = page.handle;
  idle_.erase(page.in_idle);
  page = {};
  return handle;
}

/// Physical memory that is mapped nowhere.
PagedMemory::Handle PagedMemory::take() {
  if (!free_.empty()) {
    const Handle handle = free_.back();
    free_.pop_back();
    return handle;
  }
  if (!idle_.empty()) {
    return unmap(Place(idle_.front()));
  }
  const CUmemAllocationProp kind = memory_of(gpu_);
  CUmemGenericAllocationHandle made = 0;
  if (const CUresult error = driver_.create(&made, page_, &kind, 0);
      error == CUDA_ERROR_OUT_OF_MEMORY) {
    memory_.fail_without(page_, error);
  } else {
    check_cuda(error, "physical memory");
  }
  memory_.add(static_cast<std::ptrdiff_t>(page_));
  return made;
}

/// Pages [first, last), of which none is.
void PagedMemory::map(Region& region, std::size_t first, std::size_t last) {
  constexpr const char* k_what = "mapping memory";
  std::byte* const begin = region.first + first * page_;
  const std::size_t bytes = (last - first) * page_;
  for (std::size_t at = first; at < last; ++at) {
    Page& page = region.pages[at];
    const Handle handle = take();
    if (const CUresult error = driver_.map(address(region.first + at * page_), page_, 0, handle, 0);
        error != CUDA_SUCCESS) {
      free_.push_back(handle);
      check_cuda(error, k_what);
    }
    page.handle = handle;
    page.state = Page::State::live;
  }
  std::vector<CUmemAccessDesc> all;
  {
    const std::lock_guard lock(opened().mutex);
    for (const int gpu : std::set<int>(opened().gpus.begin(), opened().gpus.end())) {
      int can = 0;
      if (gpu == gpu_ || (driver_.can_access(&can, gpu, gpu_) == CUDA_SUCCESS && can != 0)) {
        CUmemAccessDesc& one = all.emplace_back();
        one.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        one.location.id = gpu;
        one.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
      }
    }
  }
  check_cuda(driver_.set_access(address(begin), bytes, all.data(), all.size()), k_what);
  stream_.clear(begin, bytes);
}

void PagedMemory::commit(std::span<const float> part) {
  const std::lock_guard lock(mutex_);
  Region* const found = part.empty() ? nullptr : find(part.data());
  if (found == nullptr) {
    return;
  }
  Region& region = *found;
  const auto first =
      static_cast<std::size_t>(reinterpret_cast<const std::byte*>(part.data()) - region.first);
  const std::size_t last = first + part.size_bytes();
  region.committed.add(first, last);
  const std::size_t end = (last + page_ - 1) / page_;
  for (std::size_t at = first / page_; at < end; ++at) { // Before map() takes idle pages.
    if (Page& page = region.pages[at]; page.state == Page::State::idle) {
      idle_.erase(page.in_idle);
      page.done.reset();
      page.state = Page::State::live;
    }
  }
  const auto is_mapped = [](const Page& page) { return page.state != Page::State::unmapped; };
  for (std::size_t at = first / page_; at < end;) {
    const auto from = region.pages.begin();
    const auto begin = std::find_if_not(from + static_cast<std::ptrdiff_t>(at),
                                        from + static_cast<std::ptrdiff_t>(end), is_mapped);
    const auto next = std::find_if(begin, from + static_cast<std::ptrdiff_t>(end), is_mapped);
    if (begin != next) {
      map(region, static_cast<std::size_t>(begin - from), static_cast<std::size_t>(next - from));
    }
    at = static_cast<std::size_t>(next - from);
  }
}

void PagedMemory::discard(std::span<const float> part) {
  const std::lock_guard lock(mutex_);
  Region* const found = part.empty() ? nullptr : find(part.data());
  if (found == nullptr) {
    return;
  }
  Region& region = *found;
  const auto first =
      static_cast<std::size_t>(reinterpret_cast<const std::byte*>(part.data()) - region.first);
  const std::size_t last = first + part.size_bytes();
  region.committed.remove(first, last);
  std::shared_ptr<Event> done;
  for (std::size_t at = first / page_; at < (last + page_ - 1) / page_; ++at) {
    Page& page = region.pages[at];
    if (page.state == Page::State::live &&
        !region.committed.touches(at * page_, (at + 1) * page_)) {
      if (done == nullptr) {
        done = stream_.record();
      }
      page.done = done;
      page.state = Page::State::idle;
      page.in_idle = idle_.insert(idle_.end(), Place{&region, at});
    }
  }
}

void PagedMemory::trim() {
  const std::lock_guard lock(mutex_);
  while (!idle_.empty()) {
    free_.push_back(unmap(Place(idle_.front())));
  }
  for (const Handle handle : free_) {
    release(handle);
  }
  free_.clear();
}

} // namespace trainer
