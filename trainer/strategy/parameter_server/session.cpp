#include "trainer/strategy/parameter_server/session.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

namespace trainer {
namespace {

template <typename Value>
std::vector<Value> values_in(std::span<const std::byte> bytes) {
  std::vector<Value> values(bytes.size() / sizeof(Value));
  if (!values.empty()) {
    std::memcpy(values.data(), bytes.data(), values.size() * sizeof(Value));
  }
  return values;
}

[[noreturn]] void unexpected() { throw LinkError("it sent a frame that was not due"); }

} // namespace

std::string Session::name() const {
  return hello_ ? fmt::format("worker {} ({}, pid {})", hello_->worker, who.host, who.pid)
                : fmt::format("a worker of {} (pid {})", who.host, who.pid);
}

void Session::accept(WorkerHello hello, const ShardStore& store) {
  hello_ = std::move(hello);
  if (const SharedFile file = SharedFile::open(hello_->memory)) {
    try {
      arenas_ = file.map(0, SharedLayout(hello_->arena).size);
    } catch (const LinkError&) {
      throw;
    } catch (const Error& error) {
      throw LinkError(error.what());
    }
  } else {
    gradients_.resize(store.dense_count());
    halves_.resize(wire() == WireType::fp32 ? 0 : store.dense_count());
    outgoing_.resize(store.dense_count());
  }
}

void Session::drop_push() {
  push_.reset();
  sparse_.clear();
}

Contribution Session::contribution(const ShardStore& store) const {
  Contribution one;
  const auto* shared = reinterpret_cast<const float*>(
      shares_memory() ? arenas_.data() + SharedLayout(hello_->arena).gradients : nullptr);
  std::size_t start = 0;
  for (std::size_t s = 0; s < store.dense_shards(); ++s) {
    const Shard& shard = store.shards()[s];
    one.dense.push_back(shares_memory() ? shared + shard.offset : gradients_.data() + start);
    start += shard.count();
  }
  one.sparse = sparse_;
  one.weight = push_ ? push_->weight : 0;
  return one;
}

void Session::send_parameters(FrameHeader header, const ShardStore& store) {
  header.type = FrameType::parameters;
  header.request = request;
  if (shares_memory()) {
    auto* to = reinterpret_cast<float*>(arenas_.data() + SharedLayout(hello_->arena).parameters);
    for (std::size_t s = 0; s < store.dense_shards(); ++s) {
      const auto values = store.shard_parameters(s);
      std::copy(values.begin(), values.end(), to + store.shards()[s].offset);
    }
    shared_bytes += store.dense_count() * sizeof(float);
    channel.send(header);
    return;
  }
  if (channel.has_unsent()) {
    throw LinkError("it asks for values faster than it reads them");
  }
  // The store may change before all is sent.
  std::copy_n(store.parameters().data(), outgoing_.size(), outgoing_.data());
  channel.send(header, {std::as_bytes(std::span(outgoing_))});
}

const Shard& Session::sparse_shard(const FrameHeader& header) const {
  const auto& shards = owner_.store().shards();
  if (header.extra < 0 || static_cast<std::size_t>(header.extra) >= shards.size() ||
      !shards[static_cast<std::size_t>(header.extra)].sparse) {
    throw LinkError("it asked for rows of a shard that has none");
  }
  return shards[static_cast<std::size_t>(header.extra)];
}

ReadParts Session::payload_of(const FrameHeader& header) {
  const auto text_of = [&](std::size_t longest) {
    if (header.bytes > longest) {
      throw LinkError("it sent a frame of an unexpected length");
    }
    text_.resize(header.bytes);
    return ReadParts{text_};
  };
  if (!hello_) {
    if (header.type != FrameType::hello) {
      unexpected();
    }
    return text_of(k_longest_text);
  }
  switch (header.type) {
  case FrameType::initial: {
    const std::size_t size = owner_.store().parameters().size_bytes();
    return text_of(size);
  }
  case FrameType::push:
    if (push_ || !(header.weight > 0)) {
      unexpected();
    }
    if (shares_memory()) {
      return {};
    }
    return wire() == WireType::fp32 ? ReadParts{std::as_writable_bytes(std::span(gradients_))}
                                    : ReadParts{std::as_writable_bytes(std::span(halves_))};
  case FrameType::rows_pull:
    return text_of(sparse_shard(header).rows * sizeof(std::uint64_t));
  case FrameType::rows_push: {
    const Shard& shard = sparse_shard(header);
    return text_of(shard.rows * pushed_row_bytes(shard));
  }
  case FrameType::pull:
  case FrameType::rollback:
  case FrameType::beat:
  case FrameType::goodbye:
    return {};
  default:
    unexpected();
  }
}

void Session::handle(const FrameHeader& header) {
  switch (header.type) {
  case FrameType::hello:
    owner_.hello(*this, parse_hello({reinterpret_cast<const char*>(text_.data()), text_.size()}));
    break;
  case FrameType::initial:
    owner_.initial(values_in<float>(text_));
    break;
  case FrameType::push:
    push_ = header;
    request = header.request;
    if (shares_memory()) {
      shared_bytes += owner_.store().dense_count() * sizeof(float);
    } else if (wire() != WireType::fp32) {
      wire_kernels(wire()).widen(gradients_.data(), halves_.data(), halves_.size());
    }
    owner_.pushed(*this);
    break;
  case FrameType::pull:
    drop_push(); // It has given up waiting for the values that follow.
    waits_for = header.step;
    request = header.request;
    owner_.pull(*this);
    break;
  case FrameType::rows_pull:
    send_rows(header);
    break;
  case FrameType::rows_push:
    take_rows(header);
    break;
  case FrameType::rollback:
    owner_.rollback(*this, header.step, header.extra);
    break;
  case FrameType::goodbye:
    owner_.goodbye(*this);
    break;
  default:
    break; // A beat says no more than that it came.
  }
}

void Session::send_rows(const FrameHeader& header) {
  const Shard& shard = sparse_shard(header);
  const auto index = static_cast<std::size_t>(header.extra);
  const auto rows = values_in<std::uint64_t>(text_);
  std::vector<float> values;
  values.reserve(rows.size() * shard.row_length);
  for (const std::uint64_t row : rows) {
    if (row >= shard.rows) {
      throw LinkError("it asked for a row past a shard's end");
    }
    const auto found = owner_.store().row(index, row);
    values.insert(values.end(), found.begin(), found.end());
  }
  FrameHeader reply;
  reply.type = FrameType::rows;
  reply.extra = header.extra;
  channel.send_copy(reply, std::as_bytes(std::span(values)));
}

void Session::take_rows(const FrameHeader& header) {
  const Shard& shard = sparse_shard(header);
  const std::size_t row_bytes = pushed_row_bytes(shard);
  if (push_ || text_.size() % row_bytes != 0) {
    unexpected();
  }
  SparseRows rows;
  rows.shard = static_cast<std::size_t>(header.extra);
  const std::span<const std::byte> payload = text_;
  const std::size_t numbers = payload.size() / row_bytes * sizeof(std::uint64_t);
  rows.rows = values_in<std::uint64_t>(payload.first(numbers));
  if (wire() == WireType::fp32) {
    rows.values = values_in<float>(payload.subspan(numbers));
  } else {
    const auto halves = values_in<std::uint16_t>(payload.subspan(numbers));
    rows.values.resize(halves.size());
    wire_kernels(wire()).widen(rows.values.data(), halves.data(), halves.size());
  }
  for (const std::uint64_t row : rows.rows) {
    if (row >= shard.rows) {
      throw LinkError("it pushed a row past a shard's end");
    }
  }
  sparse_.push_back(std::move(rows));
}

} // namespace trainer
