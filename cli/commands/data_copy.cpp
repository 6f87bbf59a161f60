#include "backends/support/bucket/bucket_copy.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/output/steps.h"
#include "cli/settings/locations.h"
#include "cli/target.h"
#include "submit/errors.h"

#include <fmt/format.h>

#include <string>

namespace dtrain {
namespace {

struct DataCopyOptions {
  std::string source;
  std::string folder;
  std::string profile; ///< Empty: the current one.
  bool quiet = false;
};

CommandTable data_copy_table(DataCopyOptions& options) {
  return {
      .name = "data copy",
      .summary = "Copy a bucket into a folder",
      .description =
          "Copies the objects of a bucket (Amazon S3, Alibaba Cloud OSS, or a store that speaks "
          "S3) into a folder. A file that has an object's size and time is not copied again; files "
          "that the bucket does not have stay. For a job whose --data is a bucket this happens "
          "before it starts: into ~/.cache/dtrain/data, where copies that running jobs use stay "
          "unchanged and copies unused for 30 days are deleted; for ranks in containers, in a "
          "container that runs dtrain from the job's image or --sync-image. Keys come from the "
          "file that 'dtrain data add' saved, or from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY "
          "(OSS_ACCESS_KEY_ID and OSS_ACCESS_KEY_SECRET of an oss:// bucket), or "
          "~/.aws/credentials; without any, public buckets can be read.",
      .examples = {"dtrain data copy images ./images",
                   "dtrain data copy s3://bucket/mnist /data/mnist"},
      .options = {
          {.flags = "SOURCE",
           .target = &options.source,
           .help = "A name from 'dtrain data list', or s3://BUCKET/PREFIX or oss://BUCKET/PREFIX",
           .required = true,
           .positional = true},
          {.flags = "DIR",
           .target = &options.folder,
           .help = "Destination folder; it is created",
           .complete = Complete::directory,
           .required = true,
           .positional = true},
          {.flags = "-q,--quiet", .target = &options.quiet, .help = "Print nothing but errors"},
          profile_option(options.profile)}};
}

Bucket bucket_of(const Context& context, const DataCopyOptions& options) {
  if (is_bucket(options.source)) {
    return completed("SOURCE", parse_bucket("SOURCE", options.source));
  }
  const Settings settings = read_settings(context.config_file);
  const Locations all = settings.data_of(options.profile);
  const Values& location = find_location(all, "data", options.source);
  if (!location.contains("bucket")) {
    throw UsageError(fmt::format("data '{}' is a {}, not a bucket: it is mounted, not copied",
                                 printable(options.source), location.begin()->first));
  }
  return completed("SOURCE", bucket_at("SOURCE", location));
}

int run_data_copy(Context& context, const DataCopyOptions& options) {
  const Bucket bucket = bucket_of(context, options);
  const bool shown = context.err.terminal().is_terminal;
  Steps steps(context.err, options.quiet || !shown);
  const NoteInterrupt interrupt;
  const SubmitSink tell = [&](const SubmitProgress& progress) {
    if (interrupt.signal() != 0) {
      throw Interrupted("interrupted; files copied so far are kept", interrupt.signal());
    }
    steps.tell(progress);
  };
  try {
    const CopyProgress done = copy_bucket(bucket, bucket_keys(bucket), options.folder, Others::keep,
                                          as_step(SubmitStep::copy, tell));
    steps.tell({.step = SubmitStep::copy, .done = true, .text = copied_text(done)});
    if (!options.quiet && !shown) {
      context.note(fmt::format("copy: {}", copied_text(done)));
    }
  } catch (const Error&) {
    steps.fail();
    throw;
  }
  return 0;
}

} // namespace

Invocation data_copy_command() { return bind(data_copy_table, run_data_copy); }

} // namespace dtrain
