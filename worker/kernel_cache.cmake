# Modules that were built before, so that a clone or an image does not compile the same kernels again.
#
# KEPT_MODULE is where the module of these sources, this compiler and these flags is kept, or empty
# where no folder is given. Any difference is another name; what is there is never changed.
set(KEPT_MODULE "")
if(NOT "$ENV{EMBERTIDE_KERNEL_CACHE}" STREQUAL "")
  # The compiler may be a command with arguments, such as "zig c++ -target aarch64-linux-gnu".
  separate_arguments(COMPILER_ARGUMENTS UNIX_COMMAND "${CMAKE_CXX_COMPILER_ARG1}")
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} ${COMPILER_ARGUMENTS} -v
                  OUTPUT_QUIET ERROR_VARIABLE MADE_WITH)
  string(REGEX REPLACE "InstalledDir: [^\n]*" "" MADE_WITH "${MADE_WITH}")
  if(SKBUILD_SABI_VERSION AND TARGET Python::SABIModule)
    set(MODULE _native${NB_SUFFIX_S})
  else()
    set(MODULE _native${NB_SUFFIX})
  endif()
  foreach(SETTING MODULE nanobind_VERSION CMAKE_SYSTEM_PROCESSOR CMAKE_BUILD_TYPE
          CMAKE_CXX_COMPILER_ARG1 CMAKE_CXX_FLAGS CMAKE_CXX_FLAGS_RELEASE CMAKE_MODULE_LINKER_FLAGS
          EMBERTIDE_SANITIZE)
    string(APPEND MADE_WITH "\n${SETTING}=${${SETTING}}")
  endforeach()
  file(GLOB INPUTS CONFIGURE_DEPENDS ${NATIVE}/*.[ch]pp ${CMAKE_CURRENT_SOURCE_DIR}/CMakeLists.txt)
  foreach(INPUT IN LISTS INPUTS)
    file(SHA256 ${INPUT} CONTENT)
    cmake_path(GET INPUT FILENAME NAME)
    string(APPEND MADE_WITH "\n${NAME} ${CONTENT}")
  endforeach()
  string(SHA256 KEY "${MADE_WITH}")
  set(KEPT_MODULE $ENV{EMBERTIDE_KERNEL_CACHE}/${KEY}/${MODULE})
endif()

# Copies the installed module, which is stripped, to KEPT_MODULE: whole, or not at all. A folder that
# cannot be written is no error.
function(keep_module DESTINATION)
  cmake_path(GET KEPT_MODULE PARENT_PATH FOLDER)
  install(CODE "
    set(BUILT \"\${CMAKE_INSTALL_PREFIX}/${DESTINATION}/${MODULE}\")
    string(RANDOM LENGTH 12 PART)
    set(PART \"${KEPT_MODULE}.\${PART}\")
    execute_process(COMMAND \"\${CMAKE_COMMAND}\" -E make_directory \"${FOLDER}\" ERROR_QUIET)
    file(COPY_FILE \"\${BUILT}\" \"\${PART}\" RESULT FAILED)
    if(NOT FAILED)
      file(RENAME \"\${PART}\" \"${KEPT_MODULE}\" RESULT FAILED)
    endif()
  ")
endfunction()
