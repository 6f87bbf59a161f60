// TensorBoard event files: DIR/events.out.tfevents.TIME.HOST.PID.0
//
// A file is a row of records: 8 bytes length, masked CRC-32C of those, the data, masked CRC-32C of
// the data, all little-endian. The data is an Event message of protocol buffers; the few fields
// that a scalar needs are encoded here. Each record is written out at once, so that TensorBoard
// shows a run while it trains.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trainer {

class TensorBoard {
 public:
  /// Creates the folder and the file. Throws Error.
  explicit TensorBoard(const std::string& folder);
  ~TensorBoard();
  TensorBoard(const TensorBoard&) = delete;
  TensorBoard& operator=(const TensorBoard&) = delete;

  /// Scalars of one step, by tag: "train/loss". Throws Error where the disk is full.
  void scalars(std::int64_t step, const std::vector<std::pair<std::string, double>>& values);

  /// Hides data of later steps in any file of the folder.
  void forget_after(std::int64_t step);

  const std::string& path() const { return path_; }

 private:
  void record(std::string_view data);

  std::string path_;
  int file_ = -1;
};

/// The CRC of a record: rotated and offset, so that CRCs of data that hold CRCs stay good.
std::uint32_t masked_crc32c(std::string_view bytes);

} // namespace trainer
