#pragma once

#include <vector>

#include "record/device_sample.h"
#include "record/hdf5_input.h"
#include "record/resume_row.h"
#include "record/run.h"

/// The lists of an HDF5 run file that are short beside its iterations. What files of earlier
/// releases lack is empty. All throw Error kBadData; no memory is taken for more rows than the file
/// holds numbers for.
namespace gradsync {

std::vector<EpochRow> read_epochs(const Hdf5Input& file, std::size_t ranks);
std::vector<VerificationRow> read_verification(const Hdf5Input& file);
std::vector<CalibrationRow> read_calibration(const Hdf5Input& file);
std::vector<WindowRow> read_windows(const Hdf5Input& file, std::size_t ranks);
std::vector<ClockRow> read_clocks(const Hdf5Input& file, std::size_t ranks);
std::vector<TrafficRow> read_traffic_totals(const Hdf5Input& file, std::size_t ranks);
std::vector<ReplicaRow> read_replicas(const Hdf5Input& file, std::size_t ranks);
std::vector<ResumeRow> read_resumes(const Hdf5Input& file);
std::vector<DeviceSample> read_device_samples(const Hdf5Input& file);

}  // namespace gradsync
