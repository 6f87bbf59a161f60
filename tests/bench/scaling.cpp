// Draws scaling.svg: how long an all-reduce takes on 16 to 256 ranks by what `--plan` says of each
// way, beside the ring's bound 2(n-1)/n·S/B; and, on 256 ranks in hosts of eight, by buffer size.
//   build/release/bin/bench-scaling > tests/bench/scaling.svg
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "trainer/forecast/forecast.h"

namespace {

using trainer::Carrying;
using trainer::Network;
using trainer::seconds_of;

constexpr double k_buffer = 100e6;
constexpr trainer::Link k_between = {.latency = 10e-6, .bandwidth = 3.125e9};
constexpr trainer::Link k_inside = {.latency = 1e-6, .bandwidth = 100e9};
constexpr double k_width = 360;
constexpr double k_height = 260;
constexpr double k_margin = 60;

struct Series {
  const char* name;
  const char* colour;
  std::vector<std::pair<double, double>> points;
};

/// Two logarithmic axes and a line a series.
class Chart {
 public:
  Chart(double left, std::string title, std::string x_label, std::vector<Series> all)
      : left_(left), title_(std::move(title)), x_label_(std::move(x_label)), all_(std::move(all)) {
    for (const Series& series : all_) {
      for (const auto& [x, y] : series.points) {
        x_low_ = std::min(x_low_, x);
        x_high_ = std::max(x_high_, x);
        y_low_ = std::min(y_low_, y);
        y_high_ = std::max(y_high_, y);
      }
    }
    y_low_ = std::pow(10, std::floor(std::log10(y_low_)));
    y_high_ = std::pow(10, std::ceil(std::log10(y_high_)));
  }

  std::string svg() const {
    std::string text =
        fmt::format("<g transform='translate({},{})'><text x='{}' y='-18' class='title'>{}</text>"
                    "<text x='{}' y='{}'>{}</text><rect width='{}' height='{}' class='frame'/>\n",
                    left_, k_margin, k_width / 2, title_, k_width / 2, k_height + 38, x_label_,
                    k_width, k_height);
    for (double y = y_low_; y <= y_high_ * 1.001; y *= 10) {
      text += fmt::format("<line x1='0' x2='{}' y1='{:.1f}' y2='{:.1f}' class='grid'/>"
                          "<text x='-6' y='{:.1f}' class='tick'>{:g} ms</text>\n",
                          k_width, at_y(y), at_y(y), at_y(y) + 4, y * 1e3);
    }
    for (const auto& [x, y] : all_.front().points) {
      text += fmt::format("<text x='{:.1f}' y='{}'>{}</text>\n", at_x(x), k_height + 16, label(x));
    }
    double row = 16;
    for (const Series& series : all_) {
      std::string points;
      for (const auto& [x, y] : series.points) {
        points += fmt::format("{:.1f},{:.1f} ", at_x(x), at_y(y));
      }
      text += fmt::format("<polyline points='{}' stroke='{}'/><text x='10' y='{}' fill='{}' "
                          "class='key'>{}</text>\n",
                          points, series.colour, row, series.colour, series.name);
      row += 15;
    }
    return text + "</g>\n";
  }

 private:
  double at_x(double x) const {
    return k_width * std::log(x / x_low_) / std::log(x_high_ / x_low_);
  }
  double at_y(double y) const {
    return k_height * (1 - std::log(y / y_low_) / std::log(y_high_ / y_low_));
  }
  static std::string label(double x) {
    return x >= 1e6 ? fmt::format("{:g} MB", x / 1e6)
                    : (x >= 1e3 ? fmt::format("{:g} kB", x / 1e3) : fmt::format("{:g}", x));
  }

  double left_;
  std::string title_;
  std::string x_label_;
  std::vector<Series> all_;
  double x_low_ = 1e99;
  double x_high_ = 0;
  double y_low_ = 1e99;
  double y_high_ = 0;
};

Network network_of(int ranks, int ranks_per_host) {
  return {
      .ranks = ranks, .ranks_per_host = ranks_per_host, .inside = k_inside, .between = k_between};
}

Chart by_ranks() {
  std::vector<Series> all = {{"ring", "#1f77b4", {}},
                             {"bound 2(n-1)/n S/B", "#7f7f7f", {}},
                             {"parameter server, 1", "#d62728", {}},
                             {"parameter servers, n/4", "#ff7f0e", {}}};
  for (const int n : {16, 32, 64, 128, 256}) {
    const Network network = network_of(n, 1);
    all[0].points.emplace_back(n, seconds_of(Carrying::ring, network, k_buffer));
    all[1].points.emplace_back(n, 2.0 * (n - 1) / n * k_buffer / k_between.bandwidth);
    all[2].points.emplace_back(n, seconds_of(Carrying::parameter_server, network, k_buffer, 1));
    all[3].points.emplace_back(n, seconds_of(Carrying::parameter_server, network, k_buffer, n / 4));
  }
  return {80, "All-reduce of 100 MB, 25 Gbit/s and 10 µs", "ranks, each on a host of its own", all};
}

Chart by_size() {
  std::vector<Series> all = {{"ring", "#1f77b4", {}}, {"hierarchical", "#9467bd", {}}};
  const Network network = network_of(256, 8);
  for (const double bytes : {10e3, 100e3, 1e6, 10e6, 100e6}) {
    all[0].points.emplace_back(bytes, seconds_of(Carrying::ring, network, bytes));
    all[1].points.emplace_back(bytes, seconds_of(Carrying::hierarchical, network, bytes));
  }
  return {80 + k_width + 100, "256 ranks on 32 hosts", "bytes all-reduced", all};
}

} // namespace

int main() {
  fmt::print("<svg xmlns='http://www.w3.org/2000/svg' width='{}' height='{}'>\n"
             "<style>text{{font:11px sans-serif;text-anchor:middle}}.title{{font-size:13px}}"
             ".tick{{text-anchor:end}}.key{{text-anchor:start}}.frame{{fill:none;stroke:#999}}"
             ".grid{{stroke:#ddd}}polyline{{fill:none;stroke-width:1.8}}</style>\n"
             "<rect width='100%' height='100%' fill='white'/>\n{}{}</svg>\n",
             2 * k_width + 220, k_height + 2 * k_margin, by_ranks().svg(), by_size().svg());
  return 0;
}
