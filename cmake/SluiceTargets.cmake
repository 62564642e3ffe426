# One target per folder: sl_<folder>. Headers are included from the project's root, so an
# include line shows its dependency; a folder that uses one it does not link fails at link,
# and tests/unit/test_includes fails on the include itself.
add_library(sluice_flags INTERFACE)
target_include_directories(sluice_flags INTERFACE "${PROJECT_SOURCE_DIR}")
target_compile_features(sluice_flags INTERFACE c_std_11)
target_compile_definitions(sluice_flags INTERFACE _GNU_SOURCE SLUICE_VERSION="${PROJECT_VERSION}")
target_compile_options(sluice_flags INTERFACE
  -Wall -Wextra -Wshadow -Wvla -Wconversion -Wformat=2 -Wmissing-prototypes
  -Wstrict-prototypes -Wundef -Wcast-qual -Wno-missing-field-initializers
  -fno-strict-aliasing -fstack-protector-strong)
target_link_libraries(sluice_flags INTERFACE Threads::Threads)
if(SLUICE_WERROR)
  target_compile_options(sluice_flags INTERFACE -Werror)
endif()
if(SLUICE_FAULTS)
  target_compile_definitions(sluice_flags INTERFACE SLUICE_FAULTS=1)
endif()
if(SLUICE_SANITIZE)
  target_compile_options(sluice_flags INTERFACE -fsanitize=${SLUICE_SANITIZE} -fno-omit-frame-pointer)
  target_link_options(sluice_flags INTERFACE -fsanitize=${SLUICE_SANITIZE})
endif()
if(SLUICE_COVERAGE)
  target_compile_options(sluice_flags INTERFACE --coverage)
  target_link_options(sluice_flags INTERFACE --coverage)
endif()
if(CMAKE_BUILD_TYPE STREQUAL "Release")
  target_compile_options(sluice_flags INTERFACE -D_FORTIFY_SOURCE=2)
endif()
set(CMAKE_C_STANDARD 11)
set(CMAKE_C_EXTENSIONS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

# sluice_module(NAME SOURCES ... LINK ...): the static library of one folder.
function(sluice_module name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_link_libraries(${name} PUBLIC sluice_flags ${ARG_LINK})
  set_property(GLOBAL APPEND PROPERTY SLUICE_MODULES ${name})
endfunction()

# sluice_plugin(NAME SOURCES ... LINK ...): a module loaded at run time. It finds core's
# functions in the program that loads it, and exports one symbol (plugin.map).
function(sluice_plugin name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
  add_library(${name} MODULE ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE sluice_flags ${ARG_LINK})
  set_target_properties(${name} PROPERTIES PREFIX "" C_VISIBILITY_PRESET hidden
    LIBRARY_OUTPUT_DIRECTORY "${SLUICE_PLUGIN_OUTPUT_DIR}")
  install(TARGETS ${name} LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}/sluice")
endfunction()

# sluice_program(NAME SOURCES ... LINK ...): an executable whose core is visible to plugins.
function(sluice_program name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE sluice_flags "$<LINK_LIBRARY:WHOLE_ARCHIVE,${ARG_LINK}>")
  # The libraries also depend on one another, without that feature: the whole archive wins.
  string(JOIN "," libraries ${ARG_LINK})
  set_target_properties(${name} PROPERTIES ENABLE_EXPORTS ON
    LINK_LIBRARY_OVERRIDE "WHOLE_ARCHIVE,${libraries}")
  install(TARGETS ${name} RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
endfunction()

# sluice_test(NAME SOURCES ... LINK ... LABELS ...): one cmocka executable of a module.
function(sluice_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK;LABELS" ${ARGN})
  if(NOT SLUICE_TESTS)
    return()
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE sluice_flags ${ARG_LINK} PkgConfig::cmocka)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests"
    ENABLE_EXPORTS ON)
  add_test(NAME ${name} COMMAND ${name})
  if(NOT TARGET unit_tests)
    add_custom_target(unit_tests) # all of them, and no programs
  endif()
  add_dependencies(unit_tests ${name})
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" SKIP_RETURN_CODE 77 TIMEOUT 300)
endfunction()

# sluice_fuzz(NAME SOURCES ... LINK ...): a libFuzzer target; its corpus is tests/fuzz/corpus/NAME.
function(sluice_fuzz name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
  if(NOT SLUICE_FUZZ)
    return()
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE sluice_flags ${ARG_LINK})
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/fuzz")
endfunction()
