# cmake -DSLUICE=… -DSCDOC=… -DFOLDER=… -DPLUGINS=… -P man.cmake: the pages of all commands.
file(REMOVE_RECURSE "${FOLDER}")
file(MAKE_DIRECTORY "${FOLDER}/man1" "${FOLDER}/man5" "${FOLDER}/man8")
set(ENV{SLUICE_PLUGIN_PATH} "${PLUGINS}")
set(ENV{ASAN_OPTIONS} "detect_leaks=0")
execute_process(COMMAND "${SLUICE}" help --man-dir=${FOLDER} COMMAND_ERROR_IS_FATAL ANY)
if(EXISTS "${PLUGINS}/sluice-mysql.so")
  execute_process(COMMAND "${SLUICE}" help --engine=mysql --man-dir=${FOLDER} COMMAND_ERROR_IS_FATAL ANY)
endif()
execute_process(COMMAND "${SLUICE}" help --completion=bash OUTPUT_FILE "${FOLDER}/sluice.bash"
  COMMAND_ERROR_IS_FATAL ANY)
if(SCDOC)
  file(GLOB sources "${FOLDER}/*.scd")
  foreach(source ${sources})
    get_filename_component(page "${source}" NAME_WLE) # sluice-backup.1
    string(REGEX MATCH "[0-9]$" section "${page}")
    execute_process(COMMAND "${SCDOC}" INPUT_FILE "${source}"
      OUTPUT_FILE "${FOLDER}/man${section}/${page}" COMMAND_ERROR_IS_FATAL ANY)
  endforeach()
endif()
file(TOUCH "${FOLDER}/stamp")
